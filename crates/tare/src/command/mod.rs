//! The commands, one file or folder each.

pub(crate) mod check;
pub(crate) mod clean;
pub(crate) mod compare;
pub(crate) mod cpus;
pub(crate) mod db;
pub(crate) mod db_data;
pub(crate) mod disk;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod facts;
pub(crate) mod fio_server;
pub(crate) mod guest;
pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod host_agent;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod neighbour_system;
pub(crate) mod proxy;
pub(crate) mod report;
pub(crate) mod share;
pub(crate) mod shell;
mod slide;
pub(crate) mod stacks;
pub(crate) mod start_system;
pub(crate) mod tune;
pub(crate) mod weigh;
