//! Golden screens.
