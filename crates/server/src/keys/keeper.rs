//! The master's side of the key process: starts it, gives it keys, starts it again. Holds keys as memory files that it never reads, for the
//! next key process: a key file may have been replaced since the configuration was read.

use crate::confinement::KeyConfinement;
use crate::keys::process;
use crate::keys::wire::{self, ADMIT, FORGET, KeyResponse, LOAD};
use crate::{conf::Config, say};
use conf_schema::store::KeyReader;
use metrics::Lifecycle;
use net::process::{Fork, fork_process};
use observe::os_error;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tls::isolation::KeyId;

/// Time for one file: the derivation of an encrypted key's password takes longest.
const LOAD_PATIENCE: Duration = Duration::from_secs(30);
/// A process that lived this long did not end for a reason that is still there.
const LIVED_WELL: Duration = Duration::from_secs(10);
/// Ends of young processes that are answered at once, and the pause after more of them. Handshakes do not wait that long.
const QUICK_RESTARTS_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_secs(5);
/// Ids in one order to forget keys.
const IDS_MAX: usize = 100;

/// The end of a child, as the keeper sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyProcessEnd {
    /// Another child.
    Unknown,
    Unexpected,
}

#[derive(Debug, Default)]
pub struct Keeper(Mutex<KeeperState>);

#[derive(Debug)]
struct Door {
    /// Stays open between key processes, so that requests of workers wait.
    inside: OwnedFd,
    outside: OwnedFd,
}

#[derive(Debug)]
struct KeeperProcess {
    pid: i32,
    control: OwnedFd,
    started: Instant,
}

#[derive(Debug)]
struct HeldKeys {
    ids: Vec<KeyId>,
    /// `None` in a process that serves.
    keys: Option<OwnedFd>,
}

#[derive(Debug, Default)]
struct KeeperState {
    door: Option<Door>,
    running: Option<KeeperProcess>,
    /// `None` while the first configuration is read: its user and rules are not known yet.
    confinement: Option<KeyConfinement>,
    held: Vec<HeldKeys>,
    /// Keys of the configuration that is being read, and of the one that serves.
    read: BTreeSet<KeyId>,
    current: BTreeSet<KeyId>,
    /// Keys of the configuration before.
    earlier: BTreeSet<KeyId>,
    isolates: bool,
    /// This process serves: it holds no memory files of keys, and starts no other key process.
    serves: bool,
    young_ends: u32,
    restart_at: Option<Instant>,
}

impl Keeper {
    fn state(&self) -> MutexGuard<'_, KeeperState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a configuration is read.
    pub fn begin(&self) {
        self.state().read.clear();
    }

    /// Prepares for a configuration: a process with other rights than it needs is replaced.
    pub fn ready(&self, config: &Config) {
        let mut state = self.state();
        if config.core.key_isolation {
            let wanted = Some(KeyConfinement::of(config));
            if state.confinement != wanted && state.running.is_some() && !net::process::single_threaded() {
                say!(Warn, "the key process keeps its rules until a restart: \"master_process\" is \"off\"");
            } else if state.confinement != wanted || state.running.is_none() {
                state.confinement = wanted;
                state.restart();
            }
        }
    }

    /// Adopts the configuration that was read last: its keys stay.
    pub fn adopt(&self, config: &Config) {
        self.ready(config);
        let state = &mut *self.state();
        state.earlier = std::mem::replace(&mut state.current, std::mem::take(&mut state.read));
        state.isolates = config.core.key_isolation;
    }

    /// Adopts the configuration before again.
    pub fn restore(&self, config: &Config) {
        self.ready(config);
        let state = &mut *self.state();
        state.current = std::mem::take(&mut state.earlier);
        state.isolates = config.core.key_isolation;
    }

    /// Closes the memory files of keys, in a process without a master: it serves.
    pub fn begin_to_serve(&self) {
        let mut state = self.state();
        state.serves = true;
        for held in &mut state.held {
            held.keys = None;
        }
    }

    /// Forgets keys of earlier configurations, when no plan uses them.
    pub fn forget_unused(&self) {
        let state = &mut *self.state();
        let current = &state.current;
        let mut gone = Vec::new();
        state.held.retain(|held| {
            let used = held.ids.iter().any(|id| current.contains(id));
            if !used {
                gone.extend(held.ids.iter().copied().filter(|id| !current.contains(id)));
            }
            used
        });
        if !state.isolates {
            state.stop();
            state.confinement = None;
        }
        let Some(running) = &state.running else { return };
        for ids in gone.chunks(IDS_MAX) {
            // A process that has ended starts without them.
            let _ = wire::send_packet(&running.control, &[&[FORGET], &ids.concat()[..]].concat(), &[]);
        }
    }

    /// The workers' end of the door, for a process that serves.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn door(&self) -> io::Result<Option<OwnedFd>> {
        self.state().door.as_ref().map(|door| door.outside.try_clone()).transpose()
    }

    /// Closes everything, in a child of the fork that is no key process.
    pub fn leave(&self) {
        *self.state() = KeeperState::default();
    }

    /// Takes note of a child that ended.
    pub fn ended(&self, pid: i32) -> KeyProcessEnd {
        let mut state = self.state();
        let Some(running) = state.running.take_if(|running| running.pid == pid) else { return KeyProcessEnd::Unknown };
        state.young_ends = if running.started.elapsed() >= LIVED_WELL { 0 } else { state.young_ends + 1 };
        let pause = if state.young_ends > QUICK_RESTARTS_MAX { PAUSE } else { Duration::ZERO };
        state.restart_at = Some(Instant::now() + pause);
        Lifecycle::note_key_process_respawn();
        KeyProcessEnd::Unexpected
    }

    /// Returns the process id of the key process.
    pub fn pid(&self) -> Option<i32> {
        self.state().running.as_ref().map(|running| running.pid)
    }

    pub fn restart_at(&self) -> Option<Instant> {
        self.state().restart_at
    }

    pub fn restart_if_due(&self) {
        let mut state = self.state();
        if state.restart_at.is_some_and(|at| at <= Instant::now()) {
            state.restart_at = None;
            state.restart();
        }
    }

    pub fn stop(&self) {
        self.state().stop();
    }
}

impl KeyReader for Keeper {
    fn load(&self, path: &Path, passwords: Option<&Path>) -> io::Result<Arc<[u8]>> {
        let file = conf_syntax::open_regular(path)?;
        let passwords = passwords.map(conf_syntax::open_regular).transpose()?;
        let mut state = self.state();
        if state.running.is_none() {
            state.start_with_held()?;
        }
        let files: Vec<BorrowedFd<'_>> =
            [Some(&file), passwords.as_ref()].into_iter().flatten().map(AsFd::as_fd).collect();
        let (ids, mut answers) = match state.ask(&files) {
            // The key process has ended. Its successor gets the keys of earlier files that this process holds, then
            // this file.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof || e.kind() == io::ErrorKind::BrokenPipe => {
                Lifecycle::note_key_process_respawn();
                state.stop();
                state.start_with_held()?;
                state.ask(&files)?
            }
            // A late answer would be taken for that of another file: the process is replaced.
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                Lifecycle::note_key_process_respawn();
                state.restart();
                return Err(e);
            }
            other => other?,
        };
        let mut text = Vec::new();
        let mut file = File::from(answers.next().ok_or(io::ErrorKind::UnexpectedEof)?);
        file.rewind()?;
        file.read_to_end(&mut text)?;
        state.read.extend(&ids);
        if let Some(keys) = answers.next()
            && !state.held.iter().any(|held| held.ids == ids)
        {
            let keys = (!state.serves).then_some(keys);
            state.held.push(HeldKeys { ids, keys });
        }
        Ok(text.into())
    }
}

impl KeeperState {
    /// Starts a process and gives it all keys.
    fn restart(&mut self) {
        self.stop();
        if let Err(e) = self.start_with_held() {
            say!(Alert, "fork() failed while spawning \"key process\" {}", os_error(&e));
            self.restart_at = Some(Instant::now() + PAUSE);
        }
    }

    fn start_with_held(&mut self) -> io::Result<()> {
        self.start()?;
        self.restart_at = None;
        self.give_held();
        if let Some(running) = &self.running {
            // A process that has ended is followed by another.
            let _ = wire::send_packet(&running.control, &[ADMIT], &[]);
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        if self.door.is_none() {
            let (inside, outside) = wire::socket_pair()?;
            self.door = Some(Door { inside, outside });
        }
        let (control, theirs) = wire::socket_pair()?;
        let Some(door) = &self.door else { return Ok(()) };
        let inside = door.inside.try_clone()?;
        match fork_process()? {
            Fork::Child => net::process::run_alone([theirs, inside], &self.confinement, process::run_keeper),
            Fork::Parent(pid) => {
                if self.confinement.is_some() {
                    say!(Notice, "start key process {pid}");
                }
                self.running = Some(KeeperProcess { pid, control, started: Instant::now() });
                Ok(())
            }
        }
    }

    fn stop(&mut self) {
        self.restart_at = None;
        let Some(KeeperProcess { pid, control, .. }) = self.running.take() else { return };
        // Workers ask the next process again.
        let Some(pid) = Pid::from_raw(pid) else { return };
        let _ = kill_process(pid, Signal::KILL);
        drop(control);
        // (The process of before the change to the background is no child.)
        let _ = waitpid(Some(pid), WaitOptions::empty());
    }

    /// Has the process take a file over. Returns its keys' ids and memory files.
    fn ask(&self, files: &[BorrowedFd<'_>]) -> io::Result<(Vec<KeyId>, std::vec::IntoIter<OwnedFd>)> {
        let running = self.running.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        wire::send_packet(&running.control, &[LOAD], files)?;
        if !wire::await_readable(&running.control, Instant::now() + LOAD_PATIENCE) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut packet = vec![0; wire::PACKET_MAX];
        let (length, files) = match wire::receive_packet(&running.control, &mut packet, false) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Err(io::ErrorKind::UnexpectedEof.into()),
            other => other?,
        };
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let ids = KeyResponse::read(packet.get(..length).unwrap_or_default()).done()?;
        let ids = ids.chunks_exact(size_of::<KeyId>()).filter_map(|id| id.try_into().ok()).collect();
        Ok((ids, files.into_iter()))
    }

    fn give_held(&mut self) {
        for keys in self.held.iter().filter_map(|held| held.keys.as_ref()) {
            if let Err(e) = self.ask(&[keys.as_fd()]) {
                say!(Alert, "the key process did not take over a key {}", os_error(&e));
                return;
            }
        }
    }
}
