//! Tables of directives and values, and the engine that checks, words errors and inherits.
