//! Encoding of an order's payload: 8-byte numbers, and byte strings preceded by their length.

use crate::conf::ConfTexts;
use crate::conf::layout::GenerationFacts;
use crate::conf::source::Matches;
use conf_schema::TextStore;
use conf_schema::store::MachineFacts;
use conf_syntax::{SourceFile, SourceFiles};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A listening socket of a worker thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketAssignment {
    pub thread: usize,
    pub listener: usize,
    pub socket: usize,
    /// Other threads accept from this socket, too.
    pub shared: bool,
}

#[derive(Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }
    pub fn number(&mut self, n: usize) {
        self.out.extend_from_slice(&(n as u64).to_le_bytes());
    }
    pub fn string(&mut self, text: &[u8]) {
        self.number(text.len());
        self.out.extend_from_slice(text);
    }
    pub fn paths<'a>(&mut self, paths: impl ExactSizeIterator<Item = &'a Path>) {
        self.number(paths.len());
        for path in paths {
            self.string(path.as_os_str().as_bytes());
        }
    }
    pub fn assignments(&mut self, assignments: impl ExactSizeIterator<Item = SocketAssignment>) {
        self.number(assignments.len());
        for assignment in assignments {
            self.number(assignment.thread);
            self.number(assignment.listener);
            self.number(assignment.socket);
            self.number(usize::from(assignment.shared));
        }
    }
    pub fn texts(&mut self, texts: &ConfTexts) {
        self.number(texts.files.all.len());
        for file in &texts.files.all {
            self.string(file.path.as_os_str().as_bytes());
            self.string(&file.text);
        }
        self.number(texts.matches.len());
        for (pattern, found) in &texts.matches {
            self.string(pattern.as_bytes());
            self.paths(found.iter().map(PathBuf::as_path));
        }
        self.number(texts.store.files.len());
        for (path, contents) in &texts.store.files {
            self.string(path.as_os_str().as_bytes());
            match contents {
                Ok(bytes) => {
                    self.number(0);
                    self.string(bytes);
                }
                Err(code) => self.number(usize::try_from(*code).unwrap_or(5).max(1)),
            }
        }
        if let Some(machine) = texts.store.machine {
            self.number(usize::from(machine.superuser));
            self.number(machine.cpus);
        }
        self.number(texts.came.as_ref().map_or(0, |came| came.generation as usize));
        if let Some(came) = &texts.came {
            self.number(came.at as usize);
            self.string(came.by.as_bytes());
            self.number(came.from.unwrap_or(0) as usize);
        }
    }
}

/// Every method returns `None` if the input is too short.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }
    pub fn number(&mut self) -> Option<usize> {
        let (head, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        usize::try_from(u64::from_le_bytes(*head)).ok()
    }
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        let (head, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(head)
    }
    fn path(&mut self) -> Option<PathBuf> {
        self.string().map(|bytes| PathBuf::from(OsStr::from_bytes(bytes)))
    }
    pub fn paths(&mut self) -> Option<Vec<PathBuf>> {
        let count = self.number()?;
        (0..count).map(|_| self.path()).collect()
    }
    pub fn assignments(&mut self) -> Option<Vec<SocketAssignment>> {
        let count = self.number()?;
        let assignment = |_| {
            let (thread, listener, socket) = (self.number()?, self.number()?, self.number()?);
            Some(SocketAssignment { thread, listener, socket, shared: self.number()? != 0 })
        };
        (0..count).map(assignment).collect()
    }
    pub fn texts(&mut self) -> Option<ConfTexts> {
        let store = TextStore { replay: true, ..TextStore::default() };
        let mut texts = ConfTexts { files: SourceFiles::default(), store, matches: Matches::new(), came: None };
        for _ in 0..self.number()? {
            let (path, text) = (self.path()?, self.string()?.to_vec());
            texts.files.all.push(SourceFile { path, text });
        }
        for _ in 0..self.number()? {
            let pattern = String::from_utf8(self.string()?.to_vec()).ok()?;
            texts.matches.insert(pattern, self.paths()?);
        }
        for _ in 0..self.number()? {
            let path = self.path()?;
            let contents = match self.number()? {
                0 => Ok(self.string()?.into()),
                code => Err(i32::try_from(code).ok()?),
            };
            texts.store.files.insert(path, contents);
        }
        texts.store.machine = Some(MachineFacts { superuser: self.number()? != 0, cpus: self.number()? });
        let generation = self.number()? as u64;
        if generation > 0 {
            let (at, by) = (self.number()? as u64, String::from_utf8_lossy(self.string()?).into_owned());
            let from = Some(self.number()? as u64).filter(|from| *from > 0);
            texts.came = Some(GenerationFacts { generation, at, by, from });
        }
        Some(texts)
    }
}
