#![forbid(unsafe_code)]

pub mod layer;
