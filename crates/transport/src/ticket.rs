//! What someone needs to join a job: its identity, its token and, with TLS, its authority's certificate.
//! One small file that only its owner can read.

use crate::token::{from_hex, random_bytes, to_hex};
use crate::{Security, TlsIdentity, Token};
use starlings_core::{Fault, JobId, Result};
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// First line of the file.
const TITLE: &str = "starlings ticket 1";

/// Largest file that is read; a real one has under 2 KiB.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What someone needs to join a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The job's secret.
    pub token: Token,
    /// The job's identity.
    pub job: JobId,
    /// The certificate (DER) of the job's authority, when its links are inside TLS.
    pub ca: Option<Vec<u8>>,
    /// Where the coordinator listens, as far as is known: another one may follow it elsewhere.
    pub address: Option<SocketAddr>,
}

impl Ticket {
    /// A ticket for a new job without TLS: random token, random identity.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Ticket> {
        let job = JobId(u64::from_le_bytes(random_bytes()?));
        Ok(Ticket { token: Token::random()?, job, ca: None, address: None })
    }

    /// How someone who holds only this ticket speaks to the job.
    #[must_use]
    pub fn security(&self) -> Security {
        match &self.ca {
            None => Security::Plain,
            Some(ca) => Security::Tls(TlsIdentity::joining(ca.clone())),
        }
    }

    /// Writes the file, whole or not at all, readable by its owner only. An older one is replaced.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        self.write(path, folder).map_err(|error| {
            Fault::machine(format!("cannot write the ticket {}", path.display()))
                .caused_by(error)
                .hint("choose a folder that exists and that you can write to")
        })
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It is missing, not a ticket, or others can read it (then the secret is no secret).
    pub fn load(path: &Path) -> Result<Ticket> {
        let name = path.display();
        let file = File::open(path).map_err(|error| {
            Fault::caller(format!("cannot open the ticket {name}"))
                .caused_by(error)
                .hint("copy the file that the coordinator wrote to this host")
        })?;
        let mode = file.metadata()?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(Fault::caller(format!(
                "others can read the ticket {name} (mode {:03o})",
                mode & 0o777
            ))
            .hint(format!("chmod 600 {name}")));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| {
            Fault::caller(format!("cannot read the ticket {name}")).caused_by(error)
        })?;
        Ticket::parse(&text).ok_or_else(|| {
            Fault::caller(format!("{name} is not a ticket of this version of Starlings"))
                .hint("copy the file that the coordinator wrote, unchanged")
        })
    }

    fn write(&self, path: &Path, folder: &Path) -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".ticket-")
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(folder)?;
        file.write_all(self.text().as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    }

    /// The file's text. Secret.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{TITLE}\njob {:016x}\ntoken {}\n", self.job.0, self.token.reveal());
        if let Some(ca) = &self.ca {
            text.push_str(&format!("ca {}\n", to_hex(ca)));
        }
        if let Some(address) = &self.address {
            text.push_str(&format!("at {address}\n"));
        }
        text
    }

    /// Reads the file's text; `None` if it is no ticket of this version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Ticket> {
        let mut lines = text.lines();
        (lines.next()? == TITLE).then_some(())?;
        let job = u64::from_str_radix(lines.next()?.strip_prefix("job ")?, 16).ok()?;
        let token = Token::parse(lines.next()?.strip_prefix("token ")?).ok()?;
        let (mut ca, mut address) = (None, None);
        for line in lines {
            match line.split_once(' ')? {
                ("ca", hex) if ca.is_none() && address.is_none() => ca = Some(from_hex(hex)?),
                ("at", text) if address.is_none() => address = Some(text.parse().ok()?),
                _ => return None,
            }
        }
        Some(Ticket { token, job: JobId(job), ca, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_its_file_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ticket");
        let mut ticket = Ticket::random().unwrap();
        for ca in [None, Some(vec![1, 2, 255])] {
            ticket.ca = ca;
            ticket.save(&path).unwrap();
            assert_eq!(Ticket::load(&path).unwrap(), ticket);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "no other file is left behind");
    }

    #[test]
    fn a_ticket_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ticket");
        Ticket::random().unwrap().save(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let fault = Ticket::load(&path).unwrap_err();
        assert!(fault.message().contains("mode 640"), "{fault}");
        assert!(fault.advice().unwrap().starts_with("chmod 600"), "{fault}");
    }

    #[test]
    fn anything_else_is_not_a_ticket() {
        let good = Ticket::random().unwrap().text();
        assert!(Ticket::parse(&good).is_some());
        for bad in ["", "starlings ticket 2", &good[..good.len() - 3], &format!("{good}\nca zz")] {
            assert!(Ticket::parse(bad).is_none(), "{bad}");
        }
        assert!(Ticket::load(Path::new("no such file")).is_err());
    }
}
