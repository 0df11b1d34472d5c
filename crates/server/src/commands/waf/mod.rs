//! `tidegate waf`: files of the firewall's rules, and a report of its audit log.

mod option_effects;
mod report;
mod setup;

use std::ffi::OsString;

pub const HELP: &str = "\
Usage: tidegate waf setup DIR [--crs PATH] [--paranoia LEVEL] [--block] [--audit-log FILE]
                          [--wordpress] [--nextcloud] [--phpmyadmin] [--plugin DIR] ...
       tidegate waf report AUDIT_LOG ... [--least NUMBER]

setup writes the files that connect the OWASP Core Rule Set to \"modsecurity on\": engine.conf with the
settings of the engine, crs.conf, crs-setup.conf, two files for your own exclusions, and main.conf, which
includes them. It overwrites nothing, and compiles the rules as a start does. The rules themselves stay
where they are: in Debian's package modsecurity-crs, or in an unpacked archive from
https://github.com/coreruleset/coreruleset/releases.

  --crs PATH        folder with \"rules\" (default: /usr/share/modsecurity-crs)
  --paranoia LEVEL  1 (default) to 4: more rules, more false positives
  --audit-log FILE  the log of refused requests (default: waf-audit.log beside the error log)
  --block           refuse requests at once; by default the rules only log (DetectionOnly)
  --wordpress, --nextcloud, --phpmyadmin
                    exclusions for the application: part of version 3, a plugin of version 4
  --plugin DIR      an unpacked plugin of version 4; its files are loaded around the rules

report reads audit logs (serial, native or JSON) and prints the rules that matched, with paths and
parameters, and proposes exclusions in SecLang. A proposal is no advice: an attack looks the same.

  --least NUMBER    propose for so many matches of one parameter or more (default: 2)

docs/waf.md has the whole story.

Exit code: 0; 1 if the rules do not compile, if an option of setup has no effect because a file is kept, or if
logs have no entry; 2 if a file cannot be read or written.
";

pub fn run_waf(arguments: &[OsString]) -> i32 {
    let words: Result<Vec<String>, OsString> = arguments.iter().map(|word| word.clone().into_string()).collect();
    let Ok(words) = words else {
        eprintln!("tidegate: an argument is no text");
        return 2;
    };
    let done = match words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("setup", rest)) => setup::write_setup(rest),
        Some(("report", rest)) => report::print_report(rest),
        Some((other, _)) => {
            eprintln!("tidegate: unknown command \"waf {other}\"\n\n{HELP}");
            return 2;
        }
        None => {
            eprint!("{HELP}");
            return 2;
        }
    };
    done.unwrap_or_else(|words| {
        eprintln!("tidegate: {words}");
        2
    })
}
