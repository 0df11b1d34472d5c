//! nginx.conf text to a lossless tree with spans; knows no directive.
