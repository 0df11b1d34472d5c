//! The standard output of commands. The macros of the standard library panic if the reader is gone, as `head` is.

use std::fmt;
use std::io::{self, Write};

/// Status of a command that could not write its output.
const FAILED: i32 = 1;

/// Writes to the standard output. Ends the process if that fails: quietly if the reader has closed the pipe, otherwise
/// with a message.
pub fn write(text: fmt::Arguments<'_>) {
    with(|out| out.write_fmt(text));
}

/// As [`write`], of any octets.
pub fn write_octets(octets: &[u8]) {
    with(|out| out.write_all(octets));
}

fn with(write: impl FnOnce(&mut io::StdoutLock<'static>) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    if let Err(error) = write(&mut out).and_then(|()| out.flush()) {
        end(&error);
    }
}

/// Ends the process after an error of the standard output.
pub fn end(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    // The standard error stream may be gone, too.
    let _ = writeln!(io::stderr(), "tidegate: cannot write to the standard output: {error}");
    std::process::exit(FAILED)
}

/// As `print!`, with the errors of [`write`].
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::stdout::write(format_args!($($text)*)) };
}

/// As `println!`, with the errors of [`write`].
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::stdout::write(format_args!("{}\n", format_args!($($text)*))) };
}
