//! What workers, coordinator and submitters say to each other, as bytes. Messages are postcard behind one
//! byte of version; long ones are cut into parts of at most [`PART_BYTES`], and short ones may pass
//! between the parts of a long one, so that a beat never waits behind a model. Nothing here trusts a
//! length: parts are counted and summed before they are kept, and lists have a most.

use crate::bytes::Bytes;
use crate::deal::Deal;
use crate::manifest::PartInfo;
use crate::membership::{Shortage, Wish};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use starlings_core::{Blame, Epoch, Event, Fault, FaultReport, JobId, Result, Seat, Step};
use std::fmt;

/// The version both sides must speak.
pub const VERSION: u8 = 6;

/// Most bytes of a message in one part.
pub const PART_BYTES: usize = 1 << 20;

/// Most bytes of a whole message.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// Most members in one roster.
pub const ROSTER_MAX: usize = 65_536;

/// Bytes before a part: its number and how many there are, little-endian.
pub const PART_HEADER_BYTES: usize = 8;

/// Anything that is said.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// A worker to its coordinator.
    FromWorker(FromWorker),
    /// A coordinator to its worker.
    ToWorker(ToWorker),
    /// Someone who wants something of a coordinator.
    FromClient(FromClient),
    /// The coordinator's answer.
    ToClient(ToClient),
}

/// A worker to its coordinator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// It is here, and its peers can reach it.
    Ready {
        /// Its host.
        host: String,
        /// Its process there.
        pid: u32,
        /// Where its peers reach it.
        address: String,
    },
    /// It is alive, and this far.
    Beat {
        /// The step in progress.
        step: Step,
        /// What is being done.
        phase: String,
        /// Whether that is waiting for others.
        waits: bool,
        /// Bytes sent so far.
        bytes: u64,
    },
    /// Something happened: a [`starlings_core::Event`] as JSON, since postcard cannot tell its kinds
    /// apart. See [`FromWorker::event`].
    Event(String),
    /// It lost a peer.
    Accuse {
        /// The epoch in which it had that seat.
        epoch: Epoch,
        /// The peer.
        seat: Seat,
        /// What was being done.
        phase: String,
        /// In which step.
        step: Step,
    },
    /// It hears nothing of these peers, though no link has broken; whoever is not listed is heard (again).
    Unheard {
        /// The epoch in which they had these seats.
        epoch: Epoch,
        /// The peers.
        #[serde(deserialize_with = "bounded_list")]
        seats: Vec<Seat>,
    },
    /// It cannot go on.
    Failed {
        /// The epoch in which it failed.
        epoch: Epoch,
        /// Who must act.
        blame: Blame,
        /// The whole message.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// It was a member under a coordinator before this one, and is here again.
    Return {
        /// Who it was.
        member: u64,
        /// The last lineup that it has.
        epoch: Epoch,
    },
    /// It has no seat yet, and has read what it was told to read.
    Prepared,
    /// It must go: the others are to go on without it.
    Leave,
    /// It has done its work.
    Finished {
        /// The epoch in which it did.
        epoch: Epoch,
        /// Whether it has the result, and can send it if asked.
        holds: bool,
    },
    /// The trained model, or whatever else the job promised, as the bytes of a file.
    Model(Bytes),
    /// Its part of a checkpoint is durable, for the one who commits.
    Part {
        /// The step of the checkpoint.
        step: Step,
        /// The part.
        part: PartInfo,
    },
}

/// A coordinator to its worker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// The first word to everyone who was let in: credentials for links between hosts, when there are any;
    /// their meaning is the transport's business.
    Welcome(Option<Bytes>),
    /// Begin.
    Assign(Box<Assignment>),
    /// The job runs already: read the shards of the only deal in here, say so, and wait for a seat.
    Prepare(Box<Assignment>),
    /// Members have changed: a new epoch begins.
    Regroup(Box<Lineup>),
    /// The others go on without you, as you asked.
    Released,
    /// Stop at once: the job is over without success.
    Abort {
        /// Who must act; [`Blame::Interrupted`] when a person asked.
        blame: Blame,
        /// Why.
        message: String,
        /// Who failed, where known.
        fault: Option<FaultReport>,
    },
    /// End politely: finish the step, write a checkpoint, report that you are done.
    Stop,
    /// All are done.
    Done,
    /// All are done, and the result is missing: send it.
    Deliver,
    /// The others go on without you, since you were taken for lost. Whoever is there after all may come again, as new.
    LeftBehind {
        /// Why.
        message: String,
    },
}

/// All a worker needs to begin.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The job as text; its meaning is the engine's business.
    pub job: String,
    /// Names the job in every frame.
    pub job_id: JobId,
    /// The receiver's place.
    pub seat: Seat,
    /// The epoch that begins.
    pub epoch: Epoch,
    /// Everyone, in the order of their seats.
    #[serde(deserialize_with = "bounded_list")]
    pub roster: Vec<Peer>,
    /// What peers prove to each other that they belong to this job.
    pub peer_token: Token,
    /// What is known of the data (columns, categories, statistics), so that all encode it alike.
    pub survey: Option<Bytes>,
    /// The shards of each seat; empty where the job's plan deals them itself.
    pub deal: Deal,
    /// Who the receiver is to the coordinator, and to one that may follow it.
    pub member: u64,
    /// Whether another coordinator may follow this one, should it be lost.
    pub durable: bool,
    /// Whether the job goes on when a member is lost.
    pub survives: bool,
}

/// Who sits where in an epoch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Lineup {
    /// The receiver's place.
    pub seat: Seat,
    /// The epoch that begins.
    pub epoch: Epoch,
    /// Everyone, in the order of their seats.
    #[serde(deserialize_with = "bounded_list")]
    pub roster: Vec<Peer>,
    /// The shards of each seat; empty where the job's plan deals them itself.
    pub deal: Deal,
}

impl Assignment {
    /// The receiver's own shards alone, as if it had been told to prepare them.
    #[must_use]
    pub fn own_deal(&self) -> Deal {
        self.deal.get(self.seat.index()).cloned().into_iter().collect()
    }

    /// The first lineup.
    #[must_use]
    pub fn lineup(&self) -> Lineup {
        let (roster, deal) = (self.roster.clone(), self.deal.clone());
        Lineup { seat: self.seat, epoch: self.epoch, roster, deal }
    }
}

/// One worker as its peers need to know it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its place.
    pub seat: Seat,
    /// Its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Where it is reached.
    pub address: String,
}

/// Someone who wants something of a coordinator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum FromClient {
    /// Run this job.
    Submit {
        /// The job as text.
        job: String,
        /// Whom it needs.
        wish: Wish,
        /// What is known of its data.
        survey: Option<Bytes>,
    },
    /// It submitted the job to a coordinator before this one, and is here again.
    Return {
        /// The job.
        job_id: JobId,
    },
    /// End the job politely.
    Stop,
    /// How is it going?
    Status,
}

/// A coordinator's answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ToClient {
    /// The job is accepted.
    Accepted {
        /// Its name.
        job_id: JobId,
    },
    /// The job is not accepted, or has failed.
    Failed {
        /// Who must act.
        blame: Blame,
        /// The whole message.
        message: String,
        /// What to do.
        hint: Option<String>,
        /// The loss because of which the job could not go on, where that was why.
        fault: Option<FaultReport>,
    },
    /// Something happened in the job: a [`starlings_core::Event`] as JSON.
    Event(String),
    /// The trained model as the bytes of a file.
    Model(Bytes),
    /// The job is complete.
    Done,
    /// How it is going.
    Status(Status),
}

/// How a coordinator is doing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The job that runs, if one does.
    pub job_id: Option<JobId>,
    /// Workers the job began with.
    pub workers: u32,
    /// How often members have changed.
    pub epoch: Epoch,
    /// For how long a member may be busy with one thing before it is given up; `None`: for ever.
    pub patience_seconds: Option<u64>,
    /// Whom the job waits for, and how long, where it cannot begin or go on.
    pub waiting: Option<Shortage>,
    /// Everyone who is connected or was part of the job.
    #[serde(deserialize_with = "bounded_list")]
    pub members: Vec<MemberStatus>,
}

/// How one member is doing.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its place, if it has one.
    pub seat: Option<Seat>,
    /// Its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// `waiting`, `running`, `finished`, `departed` or `dead`.
    pub standing: String,
    /// The step in progress, where known.
    pub step: Option<Step>,
    /// What is being done.
    pub phase: String,
    /// Steps behind the member that is furthest.
    pub lag: Option<u64>,
    /// Bytes sent so far.
    pub bytes: u64,
    /// For how many seconds it has been at the same thing without waiting for others.
    pub busy_seconds: u64,
    /// In how many seconds it is given up, should it still be at the same thing then. `None` while it waits for others.
    pub patience_left_seconds: Option<u64>,
    /// How long ago it was last heard, in milliseconds, while it is here.
    pub heard_ms_ago: Option<u64>,
}

impl FromWorker {
    /// An event to be told.
    #[must_use]
    pub fn event(event: &Event) -> FromWorker {
        FromWorker::Event(serde_json::to_string(event).expect("an event is always JSON"))
    }

    /// A fault to be told.
    #[must_use]
    pub fn failed(epoch: Epoch, fault: &Fault) -> FromWorker {
        let hint = fault.advice().map(str::to_owned);
        FromWorker::Failed { epoch, blame: fault.blame(), message: fault.message(), hint }
    }
}

impl ToClient {
    /// A fault to be told.
    #[must_use]
    pub fn failed(fault: &Fault) -> ToClient {
        let hint = fault.advice().map(str::to_owned);
        ToClient::Failed { blame: fault.blame(), message: fault.message(), hint, fault: None }
    }
}

/// Reads the JSON of an event.
///
/// # Errors
/// Text that is not an event: the peer broke the protocol.
pub fn read_event(text: &str) -> Result<Event> {
    serde_json::from_str(text).map_err(|error| broken("an event that is none").caused_by(error))
}

/// The bytes of a message.
///
/// # Panics
/// Never: messages hold nothing that postcard cannot write.
#[must_use]
pub fn encode(message: &Message) -> Vec<u8> {
    postcard::to_extend(message, vec![VERSION]).expect("messages hold only what postcard can write")
}

/// Reads a message.
///
/// # Errors
/// Another version, bytes that are no message, or bytes left over: the peer broke the protocol.
pub fn decode(bytes: &[u8]) -> Result<Message> {
    let (version, body) = bytes.split_first().ok_or_else(|| broken("an empty message"))?;
    if *version != VERSION {
        return Err(broken(&format!(
            "version {version} of the protocol; this one speaks {VERSION}"
        ))
        .hint("use the same version of starlings everywhere"));
    }
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(broken(&format!("{} bytes after a message", rest.len()))),
        Err(error) => Err(broken("bytes that are no message").caused_by(error)),
    }
}

/// Cuts a message into payloads for frames, to be sent in this order over one link. Payloads of other
/// messages may pass between them only if those have a single part.
///
/// # Errors
/// A message above [`MESSAGE_BYTES_MAX`].
pub fn to_parts(message: &Message) -> Result<Vec<Vec<u8>>> {
    let bytes = encode(message);
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(Fault::caller(format!(
            "a message of {} bytes is above the limit of {MESSAGE_BYTES_MAX}",
            bytes.len()
        ))
        .hint("let the workers read the data and write the model themselves, on a shared folder"));
    }
    let of = bytes.len().div_ceil(PART_BYTES) as u32;
    let cut = bytes.chunks(PART_BYTES).zip(0u32..).map(|(chunk, part)| {
        let mut payload = Vec::with_capacity(PART_HEADER_BYTES + chunk.len());
        payload.extend_from_slice(&part.to_le_bytes());
        payload.extend_from_slice(&of.to_le_bytes());
        payload.extend_from_slice(chunk);
        payload
    });
    Ok(cut.collect())
}

/// Puts the parts that arrive over one link together again. Memory grows with what has arrived, never with
/// what was announced.
#[derive(Debug)]
pub struct Assembler {
    bytes_max: usize,
    open: Vec<u8>,
    next: u32,
    of: u32,
}

impl Assembler {
    /// An assembler that refuses messages above `bytes_max`: small before a peer is known,
    /// [`MESSAGE_BYTES_MAX`] afterwards.
    #[must_use]
    pub fn new(bytes_max: usize) -> Assembler {
        Assembler { bytes_max, open: Vec::new(), next: 0, of: 0 }
    }

    /// Takes the payload of a frame; gives the message that it completes.
    ///
    /// # Errors
    /// A part that does not follow, is of the wrong length or makes the message too long, and whatever
    /// [`decode`] refuses. The link is then to be closed.
    pub fn push(&mut self, payload: &[u8]) -> Result<Option<Message>> {
        let (part, rest) =
            payload.split_first_chunk().ok_or_else(|| broken("a part without a number"))?;
        let (of, chunk) =
            rest.split_first_chunk().ok_or_else(|| broken("a part without a count"))?;
        let (part, of) = (u32::from_le_bytes(*part), u32::from_le_bytes(*of));
        if part >= of {
            return Err(broken(&format!("part {part} of {of}")));
        }
        let is_last = part == of - 1;
        let sound = if is_last { 1..=PART_BYTES } else { PART_BYTES..=PART_BYTES };
        if !sound.contains(&chunk.len()) {
            return Err(broken(&format!("part {part} of {of} with {} bytes", chunk.len())));
        }
        // All parts but the last are full, so the count alone says how long the message is at least.
        let last = if is_last { chunk.len() } else { 1 };
        if (of as usize - 1).saturating_mul(PART_BYTES).saturating_add(last) > self.bytes_max {
            return Err(broken(&format!("a message above {} bytes", self.bytes_max)));
        }
        if of == 1 {
            return decode(chunk).map(Some);
        }
        if part != self.next || (part > 0 && of != self.of) {
            return Err(broken(&format!("part {part} of {of} where part {} was due", self.next)));
        }
        self.open.extend_from_slice(chunk);
        (self.next, self.of) = (part + 1, of);
        if !is_last {
            return Ok(None);
        }
        self.next = 0;
        let whole = std::mem::take(&mut self.open);
        decode(&whole).map(Some)
    }
}

fn broken(what: &str) -> Fault {
    Fault::peer(None, format!("the peer sent {what}"))
}

/// What peers prove to each other that they belong to a job. Never shown in logs.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token(pub [u8; 32]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// A list of at most [`ROSTER_MAX`]: a few bytes of a hostile message would otherwise become many more in
/// memory for each element.
fn bounded_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Bounded<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {ROSTER_MAX}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = seq.next_element()? {
                if list.len() == ROSTER_MAX {
                    return Err(A::Error::custom("the list is too long"));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    from.deserialize_seq(Bounded(std::marker::PhantomData))
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
