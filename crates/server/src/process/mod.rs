//! Processes: the master, the worker process with its threads, and their communication.

pub mod background;
pub mod channel;
pub mod control;
pub mod control_api;
pub mod facts;
pub mod listeners;
pub mod master;
pub mod neighbours;
pub mod pidfile;
pub mod reload;
pub mod requests;
pub mod signals;
pub mod single;
pub mod start;
mod supervisor;
pub mod threads;
mod upgrade;
pub mod upgrade_command;
pub mod worker_process;
