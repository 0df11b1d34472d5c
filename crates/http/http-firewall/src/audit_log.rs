//! The audit log: one file (serial), or a file for each transaction with an index (parallel).

use crate::chain::RuleLines;
use conf_schema::Problem;
use http_engine::plan::Folder;
use http_engine::{BlockPlan, Request};
use observe::{LogFile, LogFiles, Severity};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use waf::{AuditState, AuditType, Settings, Transaction};

/// The files of a block's audit log. `SecAuditLog` and its second file are opened by the master and reopened on USR1.
pub struct AuditLog {
    /// Serial: the entries. Parallel: a line for each.
    files: Vec<Arc<LogFile>>,
    parallel: Option<EntryFolder>,
}

/// `SecAuditLogStorageDir` with the permissions of new folders and files.
#[derive(Clone)]
struct EntryFolder {
    path: PathBuf,
    folder_mode: u32,
    file_mode: u32,
}

/// Registers the files of the audit log; `None` if the rules name none. Fails for a log that cannot be written as the
/// rules want it.
pub fn plan(settings: &Settings, lines: &RuleLines, block: &mut BlockPlan<'_>) -> Result<Option<AuditLog>, Problem> {
    if settings.audit != AuditState::Off && settings.audit_log.is_none() && settings.audit_type == AuditType::Serial {
        lines.warn(block.cx, "rules: SecAuditEngine is on, and there is no SecAuditLog: nothing is written");
    }
    if settings.audit_type == AuditType::Serial && settings.audit_file_mode != Settings::default().audit_file_mode {
        let words = "rules: SecAuditLogFileMode has no effect on SecAuditLog, which its owner alone can read";
        lines.warn(block.cx, words);
    }
    let names = [&settings.audit_log, &settings.audit_log_second];
    let mut files = Vec::new();
    if settings.audit_type != AuditType::Https {
        for file in names.into_iter().flatten() {
            let path = block.cx.full_name(&file.name);
            let logs = block.cx.get::<LogFiles>();
            files.push(logs.secret_file(&path));
            logs.note_place(&path, || format!("{}:{}", file.place.file, file.place.line));
        }
    }
    let parallel = match settings.audit_type {
        AuditType::Serial => None,
        AuditType::Parallel => {
            let Some(folder) = &settings.audit_directory else {
                let words = "rules: SecAuditLogType Parallel needs SecAuditLogStorageDir";
                return Err(Problem::says(words).hint("name a folder, or write SecAuditLogType Serial"));
            };
            let path = block.cx.full_name(folder);
            let folder = Folder { path: path.clone(), needed: true, is_state: false };
            if !block.folders.contains(&folder) {
                block.folders.push(folder);
            }
            let (folder_mode, file_mode) = (settings.audit_directory_mode, settings.audit_file_mode);
            Some(EntryFolder { path, folder_mode, file_mode })
        }
        AuditType::Https => {
            let words = "rules: SecAuditLogType HTTPS is not supported: entries are not sent over the network";
            return Err(Problem::says(words).hint("Serial and Parallel are written to files"));
        }
    };
    Ok((!files.is_empty() || parallel.is_some()).then_some(AuditLog { files, parallel }))
}

/// Eight hexadecimal digits that divide the parts of a native entry.
fn boundary() -> String {
    let bytes: [u8; 4] = net::random::bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl AuditLog {
    /// Writes the entry of a transaction: serial ones with one write, as access logs; files of their own on the pool.
    pub fn write(&self, r: &Request, transaction: &Transaction) {
        let text = transaction.audit_text(&boundary());
        let Some(folder) = &self.parallel else {
            return self.append(r, text.as_bytes());
        };
        let name = entry_name(base::clock::unix_seconds(), transaction.unique_id());
        self.append(r, index_line(r, transaction, &name, text.len()).as_bytes());
        let folder = folder.clone();
        let log = r.loc().core.error_log.clone();
        let number = r.connection().number;
        let job = move || {
            if let Err(error) = folder.write(&name, text.as_bytes()) {
                let (path, shown) = (folder.path.display(), observe::os_error(&error));
                log.log(Severity::Error, number, format_args!("ModSecurity: audit entry in \"{path}\" failed {shown}"));
            }
        };
        match net::pool::find_pool(net::pool::DEFAULT).map(|pool| pool.run(job)) {
            // Its receiver is not needed.
            Some(Ok(_)) | None => {}
            Some(Err(overflow)) => {
                let waiting = overflow.waiting;
                r.log(Severity::Error, format_args!("ModSecurity: no audit entry: {waiting} tasks of the pool wait"));
            }
        }
    }

    fn append(&self, r: &Request, bytes: &[u8]) {
        for file in &self.files {
            if let Err(error) = file.append(bytes) {
                let (path, shown) = (file.path.display(), observe::os_error(&error));
                r.log(Severity::Alert, format_args!("write() to \"{path}\" failed {shown}"));
            }
        }
    }
}

/// `/20261129/20261129-0815/20261129-081530-ID`, in local time.
fn entry_name(seconds: i64, id: &str) -> String {
    let time = observe::clock::civil_time(seconds + i64::from(observe::clock::local_offset(seconds)));
    let day = format!("{:04}{:02}{:02}", time.year, time.month, time.day);
    let minute = format!("{day}-{:02}{:02}", time.hour, time.minute);
    // An id of the client's choice must not name another folder.
    let id: String = id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    format!("/{day}/{minute}/{minute}{:02}-{id}", time.second)
}

/// The line of the index, in the form of ModSecurity.
fn index_line(r: &Request, transaction: &Transaction, name: &str, size: usize) -> String {
    let host = String::from_utf8_lossy(r.target.host());
    let host = if host.is_empty() { "-" } else { &host };
    let line = String::from_utf8_lossy(r.head.line.of(&r.buf)).replace(['"', '\n', '\r'], "_");
    let seconds = base::clock::unix_seconds();
    let time = observe::clock::log_time(seconds, observe::clock::local_offset(seconds));
    format!(
        "{host} {} - - [{}] \"{line}\" {} 0 - - {} - {name} 0 {size}\n",
        r.connection().peer_text(),
        String::from_utf8_lossy(&time),
        transaction.final_status(),
        transaction.unique_id(),
    )
}

impl EntryFolder {
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path.join(name.trim_start_matches('/'));
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(self.folder_mode).create(folder)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).mode(self.file_mode).open(path)?;
        file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_entries_stay_in_their_folder() {
        let name = entry_name(0, "../../etc/passwd");
        assert!(name.ends_with("-______etc_passwd"), "{name}");
        assert_eq!(name.matches('/').count(), 3);
    }

    #[test]
    fn an_entry_has_a_file_of_its_own() {
        let path = std::env::temp_dir().join(format!("tidegate-audit-{}", std::process::id()));
        let folder = EntryFolder { path: path.clone(), folder_mode: 0o700, file_mode: 0o600 };
        folder.write("/day/minute/entry", b"text").expect("written");
        assert_eq!(std::fs::read(path.join("day/minute/entry")).expect("read"), b"text");
        std::fs::remove_dir_all(path).expect("removed");
    }
}
