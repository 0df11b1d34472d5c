//! Statistics on runs, number words, text tables, SVG plots and HTML pages for the measuring tools (`bench`, `lab`,
//! `plan`).
//! Performs no I/O and reads no clock. Randomness comes from the caller's seed: equal input draws equal pictures.

#![forbid(unsafe_code)]

mod drawing;
pub mod errors;
pub mod page;
pub mod paired;
pub mod plot;
pub mod rng;
pub mod stats;
pub mod svg;
pub mod table;
pub mod ticks;
pub mod units;
