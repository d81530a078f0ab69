//! TOML files that people write. Unknown keys and values are refused, and every error shows its
//! line with a caret. Studies and workloads are read with it.
#![forbid(unsafe_code)]

mod error;
mod reader;
mod values;

pub use error::{Hint, Problem, TomlError};
pub use reader::{Item, Source, Table, is_known};
pub use values::{ValueError, parse_share};
