//! The test harness: runs programs with and without the library and compares what they saw.
//!
//! The kernel is the oracle. `cases` holds small socket programs whose transcript must be the same
//! under the library as on kernel TCP; `matrix` runs them in every mode; `run` and `report` start
//! real programs and read what the library says about the path their bytes took. A test that would
//! pass on silent fallback is a failed test, hence the assertions in `report`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod adapter;
pub mod apps;
pub mod calls;
pub mod cases;
pub mod iwarp;
pub mod json;
pub mod matrix;
pub mod netns;
pub mod pair;
pub mod remembered;
pub mod report;
pub mod run;
pub mod side;
pub mod sys;
pub mod walk;
