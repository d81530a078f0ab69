//! CSV as RFC 4180 defines it: a header line, quotes where a field needs them, lines that end in
//! CR LF. The crate `csv` does the quoting.

use csv::{Terminator, Writer, WriterBuilder};

const IN_MEMORY: &str = "rows of one length are written to memory";

/// A CSV text under construction.
#[derive(Debug)]
pub(crate) struct CsvTable(Writer<Vec<u8>>);

impl CsvTable {
    /// A table with its header line.
    pub(crate) fn new<'c>(columns: impl IntoIterator<Item = &'c str>) -> Self {
        let writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
        let mut table = Self(writer);
        table.row(columns);
        table
    }

    /// Adds a line. It must have as many fields as the header.
    pub(crate) fn row(&mut self, fields: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        self.0.write_record(fields).expect(IN_MEMORY);
    }

    /// The whole text.
    pub(crate) fn finish(self) -> String {
        let bytes = self.0.into_inner().expect(IN_MEMORY);
        String::from_utf8(bytes).expect("every field was text")
    }
}
