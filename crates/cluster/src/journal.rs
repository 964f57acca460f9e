//! What a coordinator must not forget: the job it was given and the epochs it announced, on disk before anyone hears of
//! them. A coordinator that is killed is followed by another one that reads this and goes on. An exclusive lock keeps
//! two from writing at once.
//!
//! One file of records: a length and a CRC32C (little-endian), then postcard. What is torn at the end was never
//! announced, and is cut off.

use crate::bytes::Bytes;
use crate::deal::Deal;
use crate::membership::Wish;
use crate::roster::{MemberId, MemberInfo};
use serde::{Deserialize, Serialize};
use starlings_core::{Blame, Deadline, Epoch, Fault, FaultReport, JobId, Result, failpoint};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the end of a killed coordinator may take.
const LEAVING_MS: u64 = 2_000;

/// Largest record that is believed; a survey of many categories is the longest.
const RECORD_BYTES_MAX: u32 = 1 << 30;

/// One thing to remember.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Record {
    /// The key (DER) with which the job's authority signs, where there is one.
    Authority(Bytes),
    /// A job was accepted.
    Submitted {
        /// The job as text.
        job: String,
        /// Whom it needs.
        wish: Wish,
        /// What is known of its data.
        survey: Option<Bytes>,
    },
    /// An epoch begins.
    Epoch {
        /// Which.
        epoch: Epoch,
        /// Everyone, in the order of their seats.
        roster: Vec<MemberInfo>,
        /// The shards of each seat.
        deal: Deal,
    },
    /// The job is over.
    Ended,
    /// All members are done; the one who submitted it may not know.
    Complete,
    // What an older version does not know stands behind what it does.
    /// A member has done its work, together with all others of its epoch.
    Finished {
        /// Who.
        member: MemberId,
        /// The first epoch in which somebody has: whoever came after it has nothing left to do.
        epoch: Epoch,
        /// Whether it has the result, and can send it if asked.
        holds: bool,
    },
    /// All members were asked to end politely.
    Stopping {
        /// Why.
        reason: String,
    },
    /// All members have ended politely, as asked; some may not have been told.
    Stopped {
        /// Why.
        reason: String,
    },
    /// The job is over without success; some may not have been told.
    GivenUp {
        /// Who must act.
        blame: Blame,
        /// Why.
        reason: String,
    },
    /// Another coordinator has taken over.
    TakenOver,
    /// A coordinator waits for workers and a job.
    Opened {
        /// The name of the job to come, as in the ticket.
        job: JobId,
    },
    /// A member was lost or failed.
    Lost(FaultReport),
}

/// The journal of one coordinator.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens a journal and reads what is in it; a new one is made where there is none.
    ///
    /// # Errors
    /// Another coordinator has it, or the folder cannot be written.
    pub fn open(path: &Path) -> Result<(Journal, Vec<Record>)> {
        let wrong = |error: std::io::Error| {
            Fault::machine(format!("cannot keep the journal {}", path.display())).caused_by(error)
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(wrong)?;
        file.set_permissions(Permissions::from_mode(0o600)).map_err(wrong)?;
        lock(&file).map_err(|_| {
            Fault::caller(format!("another coordinator keeps the journal {}", path.display()))
                .hint("wait for it to end, or choose another --ticket")
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(wrong)?;
        let (records, whole) = read(&bytes);
        file.set_len(whole as u64).map_err(wrong)?;
        file.seek(SeekFrom::End(0)).map_err(wrong)?;
        file.sync_all().map_err(wrong)?;
        sync_folder(path).map_err(wrong)?;
        Ok((Journal { file, path: path.to_path_buf() }, records))
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// A failing disk.
    pub fn clear(&mut self) -> Result<()> {
        let cleared = self.file.set_len(0).and_then(|()| self.file.rewind());
        cleared.and_then(|()| self.file.sync_all()).map_err(|error| self.failed(error))
    }

    /// Remembers; when this returns it is on disk.
    ///
    /// # Errors
    /// A failing disk: what was written may be torn, and nobody may be told of it.
    pub fn append(&mut self, record: &Record) -> Result<()> {
        let body = postcard::to_stdvec(record).expect("plain data serialises");
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        failpoint!("journal-before");
        let written = self.file.write_all(&bytes).and_then(|()| {
            failpoint!("journal-written");
            self.file.sync_data()
        });
        failpoint!("journal-synced");
        written.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: std::io::Error) -> Fault {
        Fault::machine(format!("cannot write the journal {}", self.path.display())).caused_by(error)
    }
}

/// Locks a journal. One who was killed a moment ago may still be on its way out.
fn lock(file: &File) -> rustix::io::Result<()> {
    let by = Deadline::after_ms(LEAVING_MS);
    loop {
        let locked = rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        if locked.is_ok() || by.passed() {
            return locked;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All whole records, and how many bytes they take.
fn read(bytes: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some((record, len)) = next(&bytes[at..]) {
        records.push(record);
        at += len;
    }
    (records, at)
}

fn next(bytes: &[u8]) -> Option<(Record, usize)> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len);
    let body = rest.get(..usize::try_from(len).ok().filter(|_| len <= RECORD_BYTES_MAX)?)?;
    if crc32c::crc32c(body) != u32::from_le_bytes(*sum) {
        return None;
    }
    Some((postcard::from_bytes(body).ok()?, 8 + body.len()))
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let wish = Wish::fixed(2);
        vec![
            Record::Authority(Bytes(vec![1, 2, 3])),
            Record::Submitted { job: "x".into(), wish, survey: Some(Bytes(vec![7; 300])) },
            Record::Epoch { epoch: Epoch(0), roster: vec![], deal: vec![vec![0], vec![1]] },
            Record::Epoch { epoch: Epoch(1), roster: vec![], deal: vec![vec![0, 1]] },
        ]
    }

    #[test]
    fn what_was_remembered_is_read_by_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, before) = Journal::open(&path).unwrap();
        assert!(before.is_empty());
        for record in records() {
            journal.append(&record).unwrap();
        }
        let busy = Journal::open(&path).unwrap_err();
        assert!(busy.to_string().contains("another coordinator"), "{busy}");
        drop(journal);
        assert_eq!(Journal::open(&path).unwrap().1, records());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn whatever_is_torn_or_damaged_ends_the_journal_and_nothing_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        let mut ends = vec![0];
        for record in records() {
            journal.append(&record).unwrap();
            ends.push(std::fs::metadata(&path).unwrap().len() as usize);
        }
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(read(&bytes[..cut]).0, records()[..whole]);
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let whole = ends.iter().filter(|end| **end <= bit / 8).count() - 1;
            assert_eq!(read(&damaged).0, records()[..whole], "bit {bit}");
        }
        // The next coordinator goes on behind what is whole.
        std::fs::write(&path, &bytes[..ends[2] + 3]).unwrap();
        let (mut journal, found) = Journal::open(&path).unwrap();
        assert_eq!(found, records()[..2]);
        journal.append(&records()[3]).unwrap();
        drop(journal);
        let found = Journal::open(&path).unwrap().1;
        assert_eq!(found, [&records()[..2], &records()[3..]].concat());
    }
}
