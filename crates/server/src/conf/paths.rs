//! Where things are when the command line does not say.
//!
//! Without `-p` the places of a packaged system hold: `/etc/tidegate/nginx.conf` if it exists, else `/etc/nginx/nginx.conf`;
//! relative paths start at `/etc/nginx/`, or `/usr/share/nginx/` where the distribution keeps its pages there. Started under the name
//! `nginx` the program takes nginx's configuration, log folder and pid file alone. With `-p DIR`
//! the classic layout below DIR holds: `conf/nginx.conf`, `logs/error.log`, `logs/nginx.pid`.

use crate::voice;
use std::path::{Path, PathBuf};

const OURS: &str = "/etc/tidegate/nginx.conf";
const NGINX: &str = "/etc/nginx/nginx.conf";

/// Prefix, configuration file, error log and pid file for `-p`, before `-c` and `-e` are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub prefix: PathBuf,
    pub conf_file: PathBuf,
    pub error_log: PathBuf,
    pub pid: PathBuf,
}

pub fn defaults(prefix: Option<&Path>) -> Defaults {
    match prefix {
        Some(prefix) => Defaults {
            prefix: prefix.to_path_buf(),
            conf_file: prefix.join("conf/nginx.conf"),
            error_log: prefix.join("logs/error.log"),
            pid: prefix.join("logs/nginx.pid"),
        },
        None => {
            let as_nginx = voice::is_nginx();
            let exists = |path: &str| Path::new(path).exists();
            let debian = exists("/usr/share/nginx/html") && !exists("/etc/nginx/html");
            Defaults {
                prefix: if debian { "/usr/share/nginx/".into() } else { "/etc/nginx/".into() },
                conf_file: if exists(OURS) && !as_nginx { OURS.into() } else { NGINX.into() },
                error_log: if !as_nginx && (exists("/var/log/tidegate") || !exists("/var/log/nginx")) {
                    "/var/log/tidegate/error.log".into()
                } else {
                    "/var/log/nginx/error.log".into()
                },
                pid: if as_nginx { "/run/nginx.pid".into() } else { "/run/tidegate.pid".into() },
            }
        }
    }
}

/// Where a packaged system logs requests when the configuration does not say: beside the error log. `None` elsewhere.
pub fn access_log(prefix: &Path) -> Option<PathBuf> {
    let packaged = defaults(None);
    (prefix == packaged.prefix).then(|| packaged.error_log.with_file_name("access.log"))
}
