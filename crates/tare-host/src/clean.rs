//! Undoing what dead runs left behind.
