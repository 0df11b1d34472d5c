//! Default paths.
//!
//! Without `-p` the places of a packaged system hold: `/etc/tidegate/nginx.conf` if it exists, else `/etc/nginx/nginx.conf`;
//! relative paths start at `/etc/nginx/`, at `/usr/share/nginx/` where the distribution keeps its pages there (on Debian also
//! after the removal of nginx's package), or at `/var/lib/tidegate/` on a machine that has no nginx. Temporary files are in
//! the folder of nginx's package, or in `/var/lib/tidegate/`. Started under the name `nginx` the program takes nginx's configuration, log folder and pid file alone. With `-p DIR`
//! the classic layout below DIR holds: `conf/nginx.conf`, `logs/error.log`, `logs/nginx.pid`.

use crate::messages;
use http_engine::core_table::TempNames;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const OURS: &str = "/etc/tidegate/nginx.conf";
const NGINX: &str = "/etc/nginx/nginx.conf";

/// Default prefix, configuration file, error log and pid file for `-p`, before `-c` and `-e` apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub prefix: PathBuf,
    pub conf_file: PathBuf,
    pub error_log: PathBuf,
    pub pid: PathBuf,
}

pub fn default_paths(prefix: Option<&Path>) -> Defaults {
    match prefix {
        Some(prefix) => Defaults {
            prefix: prefix.to_path_buf(),
            conf_file: prefix.join("conf/nginx.conf"),
            error_log: prefix.join("logs/error.log"),
            pid: prefix.join("logs/nginx.pid"),
        },
        None => {
            let as_nginx = messages::is_nginx();
            let exists = |path: &str| Path::new(path).exists();
            Defaults {
                prefix: packaged_prefix(exists).into(),
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

fn packaged_prefix(exists: impl Fn(&str) -> bool) -> &'static str {
    // Configurations that Debian's package leaves behind go on to mean the same paths.
    let is_debian = exists("/etc/debian_version") && exists("/etc/nginx/sites-available");
    if (exists("/usr/share/nginx/html") || is_debian) && !exists("/etc/nginx/html") {
        "/usr/share/nginx/"
    } else if exists("/var/lib/tidegate") && !exists("/etc/nginx") {
        "/var/lib/tidegate/"
    } else {
        "/etc/nginx/"
    }
}

/// Default access log of a packaged system, beside the error log. `None` in the classic layout, which `-p` chooses even
/// if it names the packaged prefix; the default pid file tells the layouts apart.
pub fn access_log(prefix: &Path, pid: &Path) -> Option<PathBuf> {
    is_packaged(prefix, pid).then(|| default_paths(None).error_log.with_file_name("access.log"))
}

/// Folder of temporary files of a packaged system, and the names in it. `None`: below the prefix.
pub fn temp_folder(prefix: &Path, pid: &Path) -> Option<(PathBuf, TempNames)> {
    // Known before a worker leaves its privileges, and the same in all processes.
    static FOUND: OnceLock<Option<(PathBuf, TempNames)>> = OnceLock::new();
    let is_writable = |path: &str| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let found = FOUND.get_or_init(|| packaged_temp(is_writable).map(|(path, names)| (path.into(), names)));
    found.clone().filter(|_| is_packaged(prefix, pid))
}

fn is_packaged(prefix: &Path, pid: &Path) -> bool {
    let packaged = default_paths(None);
    prefix == packaged.prefix && pid == packaged.pid
}

fn packaged_temp(is_writable: impl Fn(&str) -> bool) -> Option<(&'static str, TempNames)> {
    let folders = [
        ("/var/lib/nginx/tmp", TempNames::Fedora),
        ("/var/lib/nginx", TempNames::Debian),
        ("/var/cache/nginx", TempNames::NginxOrg),
        ("/var/lib/tidegate", TempNames::Plain),
    ];
    folders.into_iter().find(|(path, _)| is_writable(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_follows_the_packages_of_the_machine() {
        let prefix = |there: &[&str]| packaged_prefix(|path| there.contains(&path));
        assert_eq!(prefix(&["/usr/share/nginx/html", "/etc/nginx", "/var/lib/tidegate"]), "/usr/share/nginx/");
        assert_eq!(prefix(&["/usr/share/nginx/html", "/etc/nginx", "/etc/nginx/html"]), "/etc/nginx/");
        assert_eq!(prefix(&["/etc/nginx", "/var/lib/tidegate"]), "/etc/nginx/");
        assert_eq!(prefix(&["/var/lib/tidegate"]), "/var/lib/tidegate/");
        assert_eq!(prefix(&[]), "/etc/nginx/");
        // Debian's package leaves its configuration behind.
        let left = ["/etc/debian_version", "/etc/nginx", "/etc/nginx/sites-available", "/var/lib/tidegate"];
        assert_eq!(prefix(&left), "/usr/share/nginx/");
    }

    #[test]
    fn temporary_files_are_where_the_packages_have_them() {
        let temp = |there: &[&str]| packaged_temp(|path| there.contains(&path));
        assert_eq!(temp(&["/var/lib/nginx", "/var/lib/tidegate"]), Some(("/var/lib/nginx", TempNames::Debian)));
        let fedora = Some(("/var/lib/nginx/tmp", TempNames::Fedora));
        assert_eq!(temp(&["/var/lib/nginx", "/var/lib/nginx/tmp"]), fedora);
        assert_eq!(temp(&["/var/cache/nginx"]), Some(("/var/cache/nginx", TempNames::NginxOrg)));
        assert_eq!(temp(&["/var/lib/tidegate"]), Some(("/var/lib/tidegate", TempNames::Plain)));
        assert_eq!(temp(&[]), None);
    }

    #[test]
    fn a_given_prefix_has_the_classic_layout_even_if_it_is_the_packaged_one() {
        let packaged = default_paths(None);
        let beside = packaged.error_log.with_file_name("access.log");
        assert_eq!(access_log(&packaged.prefix, &packaged.pid), Some(beside));
        let given = default_paths(Some(&packaged.prefix));
        assert_eq!(access_log(&given.prefix, &given.pid), None);
    }
}
