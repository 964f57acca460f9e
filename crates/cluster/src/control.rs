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
    /// Parts of one long message must not mix with those of another; what fits into one part goes between them.
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
        // Whoever sends a model for minutes must be heard meanwhile: beats do not wait for its end.
        let _turn = match parts.len() {
            1 => None,
            _ => Some(self.turn.lock().map_err(|_| lost("a sender panicked"))?),
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FromWorker;
    use starlings_transport::pair;
    use std::time::Duration;

    #[test]
    fn a_short_message_does_not_wait_for_the_end_of_a_long_one() {
        let (mine, theirs) = pair();
        let (control, peer) = (Control::new(Arc::new(mine)), Control::new(Arc::new(theirs)));
        // As whoever sends a model does from its first part to its last.
        let long = control.turn.lock().unwrap();
        let (told, done) = std::sync::mpsc::sync_channel(1);
        let beating = control.clone();
        let sent = std::thread::scope(|scope| {
            scope.spawn(move || {
                let beat = Message::FromWorker(FromWorker::Prepared);
                told.send(beating.send(&beat, Deadline::after_ms(10_000))).unwrap();
            });
            let sent = done.recv_timeout(Duration::from_secs(10));
            drop(long);
            sent
        });
        sent.expect("it waits for the long one").unwrap();
        let heard = peer.receive(Deadline::after_ms(10_000)).unwrap();
        assert!(matches!(heard, Some(Message::FromWorker(FromWorker::Prepared))));
    }
}
