//! A control link: whole messages over a link of frames, with a deadline on every call.

use crate::protocol::{Assembler, MESSAGE_BYTES_MAX, Message, to_parts};
use starlings_core::{Deadline, Fault, Result, Step};
use starlings_transport::{Header, Lane, Link, LinkError};
use std::sync::{Arc, Mutex};

/// Messages to and from one peer. `send` may be called from several threads, `receive` from one.
#[derive(Clone)]
pub struct Control {
    link: Arc<dyn Link>,
    assembler: Arc<Mutex<Assembler>>,
    /// Parts of one message must not mix with those of another.
    turn: Arc<Mutex<()>>,
}

impl Control {
    /// Over a link whose peer has been let in.
    #[must_use]
    pub fn new(link: Arc<dyn Link>) -> Control {
        let assembler = Arc::new(Mutex::new(Assembler::new(MESSAGE_BYTES_MAX)));
        Control { link, assembler, turn: Arc::default() }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The peer is gone or does not take it in time.
    pub fn send(&self, message: &Message, by: Deadline) -> Result<()> {
        let header = Header { lane: Lane::Control, kind: 0, step: Step(0), tag: 0 };
        let parts = to_parts(message)?;
        let _turn = self.turn.lock().map_err(|_| lost("a sender panicked"))?;
        parts.iter().try_for_each(|part| {
            self.link.send(header, part, by).map_err(|error| lost(&error.to_string()))
        })
    }

    /// The next message; `None` when the deadline passes first.
    ///
    /// # Errors
    /// The peer is gone or broke the protocol.
    pub fn receive(&self, by: Deadline) -> Result<Option<Message>> {
        let mut assembler = self.assembler.lock().map_err(|_| lost("a receiver panicked"))?;
        loop {
            match self.link.receive(by) {
                Ok(frame) => {
                    if let Some(message) = assembler.push(&frame.payload)? {
                        return Ok(Some(message));
                    }
                }
                Err(LinkError::Deadline) => return Ok(None),
                Err(error) => return Err(lost(&error.to_string())),
            }
        }
    }

    /// Closes the link.
    pub fn close(&self) {
        self.link.close();
    }
}

fn lost(why: &str) -> Fault {
    Fault::peer(None, format!("the control connection failed: {why}"))
}
