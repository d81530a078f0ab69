//! Loads as they run: threads that send and receive, one load with its report, and the search for
//! the highest rate.

pub mod engine;
mod gather;
pub mod load;
mod queue;
mod redial;
mod routing;
pub mod search;
mod search_run;
mod worker;
