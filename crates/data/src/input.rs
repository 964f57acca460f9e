//! Bytes of a file, decompressed on the way (gzip, zstd; told by their first bytes) and hashed if asked.
//! Everything is streamed in bounded steps: no size that a file declares is believed.

use starlings_core::{Fault, Result, nearest};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The BLAKE3 hash of bytes as they pass.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<blake3::Hasher>);

impl Tally {
    pub(crate) fn update(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).finalize().as_bytes()
    }
}

/// Something to read from the start, as often as needed.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    File(PathBuf),
    /// A file at an address.
    #[cfg(feature = "remote")]
    Remote(std::sync::Arc<crate::remote::Remote>),
    /// Bytes that are part of the program.
    Memory {
        name: String,
        bytes: Vec<u8>,
    },
}

impl Input {
    /// What messages call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Input::File(path) => path.display().to_string(),
            #[cfg(feature = "remote")]
            Input::Remote(remote) => remote.address().to_string(),
            Input::Memory { name, .. } => name.clone(),
        }
    }

    /// Its size on disk.
    pub(crate) fn size(&self) -> Result<u64> {
        match self {
            Input::File(path) => {
                let found = std::fs::metadata(path).map_err(|error| cannot_open(path, &error))?;
                Ok(found.len())
            }
            #[cfg(feature = "remote")]
            Input::Remote(remote) => Ok(remote.size()),
            Input::Memory { bytes, .. } => Ok(bytes.len() as u64),
        }
    }

    /// Opens it at the start.
    pub(crate) fn open<'a>(&'a self, tally: Option<&'a Tally>) -> Result<Stream<'a>> {
        match self {
            Input::File(path) => {
                let mut file = File::open(path).map_err(|error| cannot_open(path, &error))?;
                let failed = |error| cannot_read(&self.name(), false, &error);
                let mut magic = [0; 4];
                let length = read_up_to(&mut file, &mut magic).map_err(failed)?;
                file.rewind().map_err(failed)?;
                let size = file.metadata().map_err(failed)?.len();
                let plain: Plain<'a> = match tally {
                    None => Plain::File(file),
                    Some(tally) => Plain::Other(Box::new(Hashing { inner: file, tally })),
                };
                self.decode(&magic[..length], plain, size)
            }
            #[cfg(feature = "remote")]
            Input::Remote(remote) => {
                let reader = || crate::remote::Reader::new(remote.clone());
                let magic = remote
                    .range(0, 4)
                    .map_err(|error| cannot_read(remote.address(), false, &error))?;
                let plain: Plain<'a> = match tally {
                    None => Plain::Remote(reader()),
                    Some(tally) => Plain::Other(Box::new(Hashing { inner: reader(), tally })),
                };
                self.decode(&magic, plain, remote.size())
            }
            Input::Memory { bytes, .. } => {
                let plain: Plain<'a> = match tally {
                    None => Plain::Other(Box::new(bytes.as_slice())),
                    Some(tally) => {
                        Plain::Other(Box::new(Hashing { inner: bytes.as_slice(), tally }))
                    }
                };
                self.decode(&bytes[..bytes.len().min(4)], plain, bytes.len() as u64)
            }
        }
    }

    /// Hashes all of it, as it lies on disk.
    pub(crate) fn hash(&self, tally: &Tally) -> Result<()> {
        let mut read: Box<dyn Read> = match self {
            Input::File(path) => {
                Box::new(File::open(path).map_err(|error| cannot_open(path, &error))?)
            }
            #[cfg(feature = "remote")]
            Input::Remote(remote) => Box::new(crate::remote::Reader::new(remote.clone())),
            Input::Memory { bytes, .. } => Box::new(bytes.as_slice()),
        };
        let mut hashing = Hashing { inner: &mut read, tally };
        let copied = io::copy(&mut hashing, &mut io::sink());
        copied.map(|_| ()).map_err(|error| cannot_read(&self.name(), false, &error))
    }

    fn decode<'a>(&self, magic: &[u8], plain: Plain<'a>, size: u64) -> Result<Stream<'a>> {
        let name = self.name();
        let unpacked = |read: Box<dyn Read + Send + 'a>| Stream {
            name: name.clone(),
            packed: true,
            size: u64::MAX,
            inner: Plain::Other(read),
        };
        Ok(match magic {
            [0x1f, 0x8b, ..] => {
                let decoder = flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(
                    STEP,
                    plain.into_read(),
                ));
                unpacked(Box::new(decoder))
            }
            [0x28, 0xb5, 0x2f, 0xfd] => {
                let decoder = zstd::Decoder::new(plain.into_read())
                    .map_err(|error| cannot_read(&name, true, &error))?;
                unpacked(Box::new(decoder))
            }
            _ => Stream { name, packed: false, size, inner: plain },
        })
    }
}

const STEP: usize = 1 << 16;
/// Most memory that is taken before bytes arrive.
const AHEAD: usize = 1 << 22;

/// Decompressed bytes, in order.
pub(crate) struct Stream<'a> {
    name: String,
    packed: bool,
    /// The bytes of all of it when it was opened, or as many as can be. Only buffers are made by it, so that a small
    /// file takes a small one; where reading ends is for the bytes to say.
    size: u64,
    inner: Plain<'a>,
}

enum Plain<'a> {
    File(File),
    #[cfg(feature = "remote")]
    Remote(crate::remote::Reader),
    Other(Box<dyn Read + Send + 'a>),
}

impl<'a> Plain<'a> {
    fn into_read(self) -> Box<dyn Read + Send + 'a> {
        match self {
            Plain::File(file) => Box::new(file),
            #[cfg(feature = "remote")]
            Plain::Remote(reader) => Box::new(reader),
            Plain::Other(read) => read,
        }
    }
}

impl Stream<'_> {
    /// Room for the next `length` bytes: no more than there may be.
    pub(crate) fn room(&self, length: usize) -> usize {
        length.min(AHEAD).min(usize::try_from(self.size).unwrap_or(AHEAD))
    }

    /// Appends up to `length` bytes to `buffer`; fewer only at the end. Memory grows with what arrives.
    pub(crate) fn append(&mut self, length: usize, buffer: &mut Vec<u8>) -> Result<usize> {
        buffer.reserve(self.room(length));
        let appended = match &mut self.inner {
            Plain::File(file) => file.take(length as u64).read_to_end(buffer),
            #[cfg(feature = "remote")]
            Plain::Remote(reader) => reader.take(length as u64).read_to_end(buffer),
            Plain::Other(read) => read.take(length as u64).read_to_end(buffer),
        };
        appended.map_err(|error| cannot_read(&self.name, self.packed, &error))
    }

    /// Goes forward by this many bytes, or to the end.
    pub(crate) fn skip(&mut self, bytes: u64) -> Result<()> {
        let skipped = match &mut self.inner {
            Plain::File(file) => {
                file.seek(SeekFrom::Current(i64::try_from(bytes).unwrap_or(i64::MAX))).map(|_| 0)
            }
            #[cfg(feature = "remote")]
            Plain::Remote(reader) => {
                reader.skip(bytes);
                Ok(0)
            }
            Plain::Other(read) => io::copy(&mut read.take(bytes), &mut io::sink()),
        };
        skipped.map(|_| ()).map_err(|error| cannot_read(&self.name, self.packed, &error))
    }

    /// Goes forward from the start to this byte: a plain file seeks, a compressed one is read and dropped.
    pub(crate) fn skip_to(&mut self, byte: u64) -> Result<()> {
        let skipped = match &mut self.inner {
            Plain::File(file) => file.seek(SeekFrom::Start(byte)).map(|_| byte),
            #[cfg(feature = "remote")]
            Plain::Remote(reader) => {
                reader.seek(byte);
                Ok(byte)
            }
            Plain::Other(read) => io::copy(&mut read.take(byte), &mut io::sink()),
        };
        match skipped {
            Ok(length) if length == byte => Ok(()),
            Ok(length) => Err(changed(&self.name)
                .caused_by(format!("it has {length} bytes, and byte {byte} was wanted"))),
            Err(error) => Err(cannot_read(&self.name, self.packed, &error)),
        }
    }
}

/// The file is not what the survey saw.
pub(crate) fn changed(name: &str) -> Fault {
    Fault::caller(format!("{name} has changed since it was surveyed"))
        .hint("do not write to data that a job is reading; start the job again")
}

fn read_up_to(read: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match read.read(&mut buffer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

struct Hashing<'a, R> {
    inner: R,
    tally: &'a Tally,
}

impl<R: Read> Read for Hashing<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.tally.update(&buffer[..length]);
        Ok(length)
    }
}

fn cannot_read(name: &str, packed: bool, error: &io::Error) -> Fault {
    // Errors of the operating system carry its number; those of a decoder do not.
    match packed && error.raw_os_error().is_none() {
        true => Fault::caller(format!("{name} is damaged: it does not decompress"))
            .caused_by(error)
            .hint("fetch or write the file again"),
        false => Fault::machine(format!("cannot read {name}")).caused_by(error),
    }
}

/// Why a file does not open, with the nearest name in its folder if it is not there.
pub(crate) fn cannot_open(path: &Path, error: &io::Error) -> Fault {
    let name = path.display();
    if error.kind() != io::ErrorKind::NotFound {
        return Fault::caller(format!("cannot open {name}")).caused_by(error);
    }
    let fault = Fault::caller(format!("there is no file {name}"));
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return fault,
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return fault.hint(format!("the folder {} does not exist either", folder.display()));
    };
    let names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    match nearest(&wanted, names.iter().map(String::as_str)) {
        Some(near) => fault.hint(format!("did you mean '{near}' in that folder?")),
        None => {
            fault.hint(format!("its folder {} has no file of a similar name", folder.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn written(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// Ten thousand files of a few lines took a buffer of megabytes each, and as long as that takes.
    #[test]
    fn a_small_file_takes_a_small_buffer() {
        let file = written(b"1,2\n3,4\n");
        let input = Input::File(file.path().to_path_buf());
        let tally = Tally::default();
        for tally in [None, Some(&tally)] {
            let mut buffer = Vec::new();
            assert_eq!(input.open(tally).unwrap().append(2 << 20, &mut buffer).unwrap(), 8);
            assert_eq!(buffer, b"1,2\n3,4\n");
            assert!(buffer.capacity() < 1024, "{} bytes for 8", buffer.capacity());
        }
        assert_eq!(tally.digest(), *blake3::hash(b"1,2\n3,4\n").as_bytes());
    }

    /// The size at the opening only makes the buffer.
    #[test]
    fn a_file_that_grows_while_it_is_open_is_read_to_its_end() {
        let mut file = written(b"1\n");
        let input = Input::File(file.path().to_path_buf());
        let mut stream = input.open(None).unwrap();
        file.write_all(&b"2\n".repeat(5000)).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(stream.append(1 << 20, &mut buffer).unwrap(), 10_002);
        assert!(buffer.starts_with(b"1\n2\n") && buffer.ends_with(b"2\n2\n"));
    }

    #[test]
    fn an_empty_file_has_no_bytes() {
        let file = written(b"");
        let input = Input::File(file.path().to_path_buf());
        let mut buffer = Vec::new();
        assert_eq!(input.open(None).unwrap().append(1 << 20, &mut buffer).unwrap(), 0);
        assert_eq!(input.size().unwrap(), 0);
    }
}
