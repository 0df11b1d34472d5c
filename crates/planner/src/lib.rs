//! From measured capacity to machines and dollars: the library behind `tidegate plan`.
//!
//! Everything is a pure function of its input files: no clock, no network, randomness from a stated seed. Read in this
//! order: [`capacity`] (what one machine can do), [`cluster`] (how many are needed), [`warnings`] (what the figures hide),
//! [`compare`] (a foreign table against its own data), [`usl`] (how capacity grows), [`queueing`] (what waiting costs),
//! [`regions`] and [`day`] (simulations), [`cli`] (the command).

#![forbid(unsafe_code)]

pub mod capacity;
pub mod cli;
pub mod cluster;
pub mod compare;
pub mod cost_report;
pub mod day;
pub mod day_report;
pub mod fit_report;
pub mod queueing;
pub mod regions;
pub mod regions_report;
pub mod sheet;
pub mod usl;
pub mod warnings;

pub use cli::plan_main;
