//! Environments: one file per runtime (`runtime`) and one per layer (`layer`), on the ground that a
//! run shares (`site`).
//!
//! **Invariant:** everything that an environment makes is journalled before it is made, named
//! `tare-RUN...`, and gone after `stop`, after `Site::close` and after `clean`.
#![forbid(unsafe_code)]

pub mod doctor;
pub mod guest;
pub mod inside;
pub mod layer;
pub mod proxy;
pub mod rootfs;
pub mod run_context;
pub mod runtime;
mod seat;
pub mod several;
pub mod site;
pub mod storage;
mod system;
pub mod unavailable;
pub mod undo;

pub use site::{Site, SiteError, SiteOptions};
