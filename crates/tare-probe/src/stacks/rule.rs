//! Rules that recognize a stack by the names of its kernel functions.

use super::script::Frame;

/// One row of a table of rules.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The subsystem or reason that the row names.
    pub name: &'static str,
    /// One line that describes what counts for the name.
    pub help: &'static str,
    /// Prefixes of the names of kernel functions, without leading underscores, separated by spaces.
    pub functions: &'static str,
    /// True if only the leaf decides, because these functions are at the root of nearly every
    /// stack.
    pub leaf_only: bool,
}

impl Rule {
    /// Creates a rule for every frame of a stack.
    pub(super) const fn new(
        name: &'static str,
        help: &'static str,
        functions: &'static str,
    ) -> Self {
        Self { name, help, functions, leaf_only: false }
    }

    /// Splits the field `functions` into its prefixes.
    pub fn functions(&self) -> impl Iterator<Item = &'static str> {
        self.functions.split_whitespace()
    }

    /// Returns whether the rule recognizes a function.
    pub(super) fn matches(&self, function: &str) -> bool {
        let function = function.trim_start_matches('_');
        self.functions().any(|prefix| function.starts_with(prefix))
    }
}

/// Finds the name of the rule for the innermost kernel frame that any rule of the table matches.
pub(super) fn first_match(table: &[Rule], frames: &[Frame]) -> Option<&'static str> {
    let kernel = frames.iter().take_while(|frame| frame.kernel);
    kernel.enumerate().find_map(|(depth, frame)| {
        let found =
            table.iter().find(|rule| (depth == 0 || !rule.leaf_only) && rule.matches(&frame.name));
        found.map(|rule| rule.name)
    })
}
