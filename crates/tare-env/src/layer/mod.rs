//! The layers of an environment, one file each.

pub mod security;
