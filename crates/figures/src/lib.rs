//! What the measuring tools (`bench`, `lab`, `plan`) share: statistics on runs, words for numbers, text tables, SVG plots
//! and self-contained HTML pages.
//!
//! Nothing here does I/O, reads a clock or knows what a web server is. Randomness comes from a seed that the caller gives,
//! so that the same input always draws the same picture. Start with [`stats`] for the intervals and [`plot`] for the figures.

#![forbid(unsafe_code)]

pub mod page;
pub mod paired;
pub mod plot;
pub mod rng;
pub mod stats;
pub mod svg;
pub mod table;
pub mod ticks;
pub mod units;
