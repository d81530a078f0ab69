//! The program that a bench measures: the one that cargo built with the bench, or that of the
//! argument `program=PATH`, such as the shipped one.

pub(crate) fn program() -> String {
    let named = std::env::args().find_map(|word| word.strip_prefix("program=").map(String::from));
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_tare").into())
}
