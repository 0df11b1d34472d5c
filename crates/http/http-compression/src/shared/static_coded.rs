//! Precompressed files: `name.gz`, `name.br`, `name.zst`.

use super::compress::{self, Coding};
use super::gzip_ok::GzipOk;
use http_engine::core_table::SymlinkMode;
use http_engine::files::FileKind;
use http_engine::{Flow, Handler, Request, Str, file_paths};
use http_types::{Known, Method};
use observe::{Severity, os_error};

conf_schema::words! {
    pub enum StaticMode { Off = "off", On = "on", Always = "always" }
}

/// Serves the precompressed file, if present and accepted.
pub struct StaticCoded {
    pub coding: Coding,
    pub mode: StaticMode,
}

impl Handler for StaticCoded {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head) || r.target.path().ends_with(b"/") {
            return Flow::Declined;
        }
        // gzip's settings for clients and proxies apply to files, too; other codings only consider the client.
        let (takes_it, vary) = match self.coding {
            Coding::Gzip => (GzipOk::of(r).allows(r), GzipOk::of(r).vary),
            coding => {
                let accept = r.header(Known::AcceptEncoding).unwrap_or(b"");
                (compress::coding_quality(accept, coding.name()) > 0, true)
            }
        };
        let accepted = self.mode == StaticMode::Always || takes_it;
        if !accepted && !vary {
            return Flow::Declined;
        }
        let path = match file_paths::mapped_path(r) {
            Ok(path) => path.with_extension(self.coding.extension()),
            Err(status) => return Flow::Status(status),
        };
        let found = match file_paths::look_up(r, &path) {
            Ok(found) => found,
            Err(e) => {
                unopened(r, &path, &e);
                return Flow::Declined;
            }
        };
        if found.kind != FileKind::File {
            return Flow::Declined;
        }
        if vary && self.mode == StaticMode::On {
            r.out.vary_by_encoding(true);
        }
        if !accepted {
            return Flow::Declined;
        }
        r.describe_file(found.size, found.modified, || Str::Shared(found.etag.clone()));
        r.out.set_content_encoding(Str::from(self.coding.name()));
        Flow::Content(found.body())
    }
}

/// Logs why a file that exists is not used.
fn unopened(r: &Request, path: &[u8], e: &std::io::Error) {
    let level = match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => return,
        Some(libc::EACCES | libc::EMLINK | libc::ELOOP) => Severity::Error,
        _ => Severity::Crit,
    };
    let linkless = r.loc().core.conf.disable_symlinks.mode != SymlinkMode::Allowed;
    let call = if linkless { "openat()" } else { "open()" };
    r.log(level, format_args!("{call} \"{}\" failed {}", String::from_utf8_lossy(path), os_error(e)));
}
