//! Compares the needs of `sandbox` with the abilities of the kernel.

use crate::conf::Config;
use crate::machine_limits::examine::{Finding, FindingVerdict};
use sandbox::{LANDLOCK_FILES, LANDLOCK_PORTS, Mode};

/// Compares the kernel with the mode of the configuration. Empty for `sandbox off` and `master_process off`.
pub fn examine_confinement(config: &Config) -> Vec<Finding> {
    let mode = config.core.sandbox.mode();
    let mut all = Vec::new();
    if mode != Mode::Off && config.core.master_process {
        all = findings(mode, sandbox::has_filters(), sandbox::landlock_version());
    }
    if config.core.key_isolation {
        all.push(keys(mode, sandbox::landlock_version(), config.needs.keys_anywhere.as_deref()));
    }
    all
}

/// Reports whether only file permissions hide the keys from workers.
fn keys(mode: Mode, landlock: u32, anywhere: Option<&str>) -> Finding {
    let ruled = matches!(mode, Mode::On | Mode::Strict) && landlock >= LANDLOCK_FILES;
    let why = match anywhere {
        Some(name) => {
            format!("\"{name}\" begins with a variable: workers can read every file that their user can read")
        }
        None if !ruled => "this kernel or this mode of sandbox does not hide the key files from the workers".into(),
        None => String::new(),
    };
    let fine = why.is_empty();
    let remedy = match fine {
        true => "",
        false => "make the key files unreadable for the workers' user, or use names that begin with a directory",
    };
    Finding {
        name: "isolated keys",
        here: if fine { "hidden" } else { "permissions only" }.into(),
        needed: "hidden".into(),
        verdict: if fine { FindingVerdict::Fine } else { FindingVerdict::Note },
        connections: None,
        why,
        remedy: remedy.into(),
    }
}

fn findings(mode: Mode, filters: bool, landlock: u32) -> Vec<Finding> {
    let finding = |name, here: String, needed: &str, fine, why: &str, remedy: &str| Finding {
        name,
        here,
        needed: needed.to_string(),
        verdict: if fine { FindingVerdict::Fine } else { FindingVerdict::Note },
        connections: None,
        why: if fine { String::new() } else { why.to_string() },
        remedy: if fine { String::new() } else { remedy.to_string() },
    };
    let word = if filters { "yes" } else { "no" };
    let why = "system calls of the server are not filtered";
    let mut out = vec![finding("seccomp", word.into(), "yes", filters, why, "a kernel with CONFIG_SECCOMP_FILTER")];
    if mode != Mode::Log {
        let (needed, why, remedy) = match mode {
            Mode::Strict => (LANDLOCK_PORTS, "files or ports of the worker are not restricted", "Linux 6.7 or newer"),
            _ => (LANDLOCK_FILES, "files of the worker are not restricted", "Linux 5.19 or newer"),
        };
        let here = if landlock == 0 { "none".into() } else { format!("version {landlock}") };
        let remedy = format!("{remedy} with CONFIG_SECURITY_LANDLOCK and \"landlock\" in the parameter lsm=");
        out.push(finding("Landlock", here, &format!("version {needed}"), landlock >= needed, why, &remedy));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_noted() {
        let verdicts = |mode, filters, landlock| -> Vec<(&str, FindingVerdict)> {
            findings(mode, filters, landlock).iter().map(|f| (f.name, f.verdict)).collect()
        };
        assert_eq!(
            verdicts(Mode::On, true, 2),
            [("seccomp", FindingVerdict::Fine), ("Landlock", FindingVerdict::Fine)]
        );
        assert_eq!(
            verdicts(Mode::Strict, true, 2),
            [("seccomp", FindingVerdict::Fine), ("Landlock", FindingVerdict::Note)]
        );
        assert_eq!(
            verdicts(Mode::On, false, 0),
            [("seccomp", FindingVerdict::Note), ("Landlock", FindingVerdict::Note)]
        );
        assert_eq!(verdicts(Mode::Log, true, 0), [("seccomp", FindingVerdict::Fine)]);
        let of_keys = |mode, landlock, anywhere| keys(mode, landlock, anywhere).verdict;
        assert_eq!(of_keys(Mode::On, 2, None), FindingVerdict::Fine);
        assert_eq!(of_keys(Mode::On, 0, None), FindingVerdict::Note);
        assert_eq!(of_keys(Mode::Off, 2, None), FindingVerdict::Note);
        assert_eq!(of_keys(Mode::On, 2, Some("ssl_certificate_key $key")), FindingVerdict::Note);
    }
}
