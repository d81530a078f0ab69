//! Reads TOML files that people write, such as studies and workloads. It refuses unknown keys and
//! values, and every error shows its line with a caret.
#![forbid(unsafe_code)]

mod error;
mod reader;
mod values;

pub use error::{Hint, Problem, TomlError};
pub use reader::{Item, Source, Table, is_known};
pub use values::{ValueError, parse_share};
