//! Library behind `tidegate plan`: from measured capacity to machines and dollars. Pure functions of input files and a
//! seed.
//! Modules: [`capacity`] of one machine, [`cluster`] sizes, [`warnings`], [`compare`] with a published table, [`usl`]
//! (growth of capacity), [`queueing`], the simulations [`regions`] and [`day`], [`names`] of a zone, [`cli`].

#![forbid(unsafe_code)]

pub mod capacity;
pub mod cli;
pub mod cluster;
pub mod compare;
pub mod cost_report;
pub mod day;
pub mod day_report;
pub mod fit_report;
pub mod names;
pub mod queueing;
pub mod regions;
pub mod regions_report;
pub mod sheet;
pub mod usl;
pub mod warnings;

pub use cli::{plan_help, plan_main};
