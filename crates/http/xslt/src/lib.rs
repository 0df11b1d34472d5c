//! XSLT 1.0 (W3C Recommendation of 16 November 1999) with XPath 1.0 and EXSLT: documents in, bytes out. No I/O: a loader
//! reads what stylesheets and documents refer to. Results equal those of libxslt; memory, steps and depth are bounded.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod compile;
mod engine;
mod evaluation;
mod exec;
mod exslt;
mod failure;
mod format;
mod functions;
pub mod fuzzing;
mod names;
mod serialize;
mod sheet;
mod store;
mod transform;
mod tree;
pub mod xml;
mod xpath;

pub use compile::{MODULES_MAX, SheetError, compile_stylesheet};
pub use engine::{BYTES_MAX, Limits, RESULT_MAX, STEPS_MAX, TEMPLATE_DEPTH_MAX};
pub use sheet::Stylesheet;
pub use transform::{Clock, DocumentSource, Param, TransformError, TransformOutcome, transform_document};
