//! Metrics of the worker process: memory, descriptors, CPU time, reloads. Opens the files of /proc before the process
//! is confined, and reads them when metrics are gathered.

use base::clock;
use metrics::{Lifecycle, MetricZone, reload, worker_process as row};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

static KEPT: OnceLock<(MetricZone<row::Of>, MetricZone<reload::Of>)> = OnceLock::new();

/// Open files of /proc; `None` without /proc.
struct OpenFiles {
    memory: Option<OwnedFd>,
    descriptors: Option<OwnedFd>,
    /// Page size in bytes, queried before the process is confined.
    page_bytes: u64,
}

/// Registers the metrics; called once by a serving process before it is confined.
pub fn install_metrics() {
    clock::update();
    Lifecycle::note_begin(clock::unix_millis());
    let open = |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).ok();
    let memory = open("/proc/self/statm", OFlags::RDONLY);
    let descriptors = open("/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY);
    let files = OpenFiles { memory, descriptors, page_bytes: rustix::param::page_size() as u64 };
    let process = MetricZone::named(&[]);
    process.ask(move |values| {
        let life = Lifecycle::now();
        values.set(row::BEGAN, Lifecycle::began_at() * 1000);
        values.set_count(row::CPU, net::process::cpu_micros());
        values.set(row::RESIDENT, files.resident().unwrap_or(0));
        values.set(row::DESCRIPTORS, files.open_descriptors().unwrap_or(0));
        values.set(row::DESCRIPTORS_MAX, getrlimit(Resource::Nofile).current.unwrap_or(0));
        values.set_count(row::RESPAWNED, life.respawned_ever);
        values.set_count(row::KEYS_RESPAWNED, life.key_processes_respawned);
    });
    let reloads = MetricZone::named(&[]);
    reloads.ask(|values| {
        let life = Lifecycle::now();
        values.set_count_at(reload::RELOADS, 0, life.loads.saturating_sub(1));
        values.set_count_at(reload::RELOADS, 1, life.reloads_failed);
        values.set(reload::LAST_OK, u64::from(life.reload_failed_at == 0));
        values.set(reload::LAST, life.loaded_at.max(life.reload_failed_at) * 1000);
        values.set(reload::LOADED, life.loaded_at * 1000);
    });
    let _ = KEPT.set((process, reloads));
}

impl OpenFiles {
    /// Bytes of resident memory (proc(5): the second number of `statm`, in pages).
    fn resident(&self) -> Option<u64> {
        let mut text = [0; 128];
        let n = rustix::io::pread(self.memory.as_ref()?, &mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..n)?).ok()?;
        let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
        Some(pages * self.page_bytes)
    }
    /// Number of open descriptors. Linux 6.2 has it as the folder's size; before, its entries are counted.
    fn open_descriptors(&self) -> Option<u64> {
        let folder = self.descriptors.as_ref()?;
        let size = rustix::fs::fstat(folder).ok()?.st_size;
        if size > 0 {
            return u64::try_from(size).ok();
        }
        rustix::fs::seek(folder, rustix::fs::SeekFrom::Start(0)).ok()?;
        let mut space = [std::mem::MaybeUninit::uninit(); 4096];
        let mut entries = rustix::fs::RawDir::new(folder, &mut space);
        let mut count = 0;
        while let Some(Ok(entry)) = entries.next() {
            count += u64::from(!entry.file_name().to_bytes().starts_with(b"."));
        }
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_process() {
        let open = |path: &str| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        let (memory, descriptors) = (open("/proc/self/statm"), open("/proc/self/fd"));
        let files = OpenFiles { memory, descriptors, page_bytes: 4096 };
        assert!(files.resident().expect("/proc") > 1 << 20);
        let before = files.open_descriptors().expect("/proc");
        let more: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").expect("a file")).collect();
        // Other tests open and close descriptors, too.
        assert!(files.open_descriptors().expect("/proc") + 25 > before + more.len() as u64);
        let none = OpenFiles { memory: None, descriptors: None, page_bytes: 4096 };
        assert_eq!((none.resident(), none.open_descriptors()), (None, None));
    }
}
