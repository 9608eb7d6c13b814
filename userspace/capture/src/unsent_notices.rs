//! Unsent notices: notices for the user that the pipeline has no room for yet.
//!
//! Owns: how many of them wait. Because: a notice says what a capture lacks, which the user must learn however busy the
//! pipeline is, and the thread that has one cannot wait for it. Does not: word them.

use crossbeam_channel::Sender;

use super::message::Message;

/// Notices that may wait: more than a user reads.
const WAITING_MAX: usize = 64;

/// Notices of one thread.
#[derive(Debug, Default)]
pub(super) struct UnsentNotices(Vec<String>);

impl UnsentNotices {
    /// Adds notices. The first ones are kept, because later ones tend to follow from them.
    pub(super) fn add(&mut self, texts: impl IntoIterator<Item = String>) {
        let room = WAITING_MAX.saturating_sub(self.0.len());
        self.0.extend(texts.into_iter().take(room));
    }

    /// Sends notices, as long as there is room.
    pub(super) fn send(&mut self, messages: &Sender<Message>) {
        self.0.retain(|text| messages.try_send(Message::Notice(text.clone())).is_err());
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn notices_wait_for_room() {
        let (sender, messages) = bounded(1);
        let mut notices = UnsentNotices::default();
        notices.add(["a", "b"].map(str::to_owned));
        for expect in ["a", "b"] {
            notices.send(&sender);
            assert!(matches!(messages.try_recv(), Ok(Message::Notice(text)) if text == expect));
        }
        notices.send(&sender);
        assert!(messages.is_empty(), "once");
    }

    #[test]
    fn few_notices_wait() {
        let (sender, messages) = bounded(3 * WAITING_MAX);
        let mut notices = UnsentNotices::default();
        (0..2 * WAITING_MAX).for_each(|n| notices.add([n.to_string()]));
        notices.send(&sender);
        assert_eq!(messages.len(), WAITING_MAX);
    }
}
