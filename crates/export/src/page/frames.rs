//! Frames: views as JSON, made by one task for all viewers.
//!
//! ```text
//!  view, on a blocking thread --> JSON, once --> watch channel: the last frame only --> viewers
//! ```
//! Invariant: one view is taken at a time, none while there is no viewer (but see
//! [`Feed::is_always_on`]); a viewer that reads slowly gets fewer frames, and none is kept for it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;

use crate::page::view::{Feed, View};

/// Interval of the frames.
const TICK: Duration = Duration::from_millis(250);
/// The least pause between two views: one that takes long does not take all of the time.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

/// The frames of a page.
pub struct Frames {
    last: watch::Sender<Bytes>,
    viewer_came: Notify,
}

impl Frames {
    /// None yet.
    pub fn new() -> Frames {
        Frames { last: watch::Sender::new(Bytes::new()), viewer_came: Notify::new() }
    }

    /// The frames from now on: texts of server-sent events.
    pub fn subscribe(&self) -> WatchStream<Bytes> {
        let stream = WatchStream::from_changes(self.last.subscribe());
        self.viewer_came.notify_one();
        stream
    }

    /// Viewers now.
    pub fn viewers(&self) -> usize {
        self.last.receiver_count()
    }

    /// Makes frames until it is dropped.
    pub async fn produce(&self, feed: Arc<dyn Feed>) {
        loop {
            while self.viewers() == 0 && !feed.is_always_on() {
                self.viewer_came.notified().await;
            }
            let begun = Instant::now();
            let (source, is_seen) = (feed.clone(), self.viewers() > 0);
            let taken = tokio::task::spawn_blocking(move || {
                let view = source.view();
                is_seen.then(|| event(&view))
            });
            let frame = taken.await.unwrap_or_else(|_| {
                let error = Some("the view could not be taken: see the server's stderr".into());
                Some(event(&View { error, ..View::default() }))
            });
            if let Some(frame) = frame {
                self.last.send_replace(frame);
            }
            tokio::time::sleep_until((begun + TICK).max(Instant::now() + LEAST_PAUSE)).await;
        }
    }
}

/// A view as a server-sent event: JSON has no line feeds outside of strings, and writes those
/// inside as escapes.
fn event(view: &View) -> Bytes {
    let mut text = b"data: ".to_vec();
    serde_json::to_writer(&mut text, view).expect("a view is JSON");
    text.extend_from_slice(b"\n\n");
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_names_hold() {
        let title = "a\nb\r\u{2028}</script>".to_string();
        let text = event(&View { title, ..View::default() });
        let text = std::str::from_utf8(&text).expect("UTF-8");
        let line = text.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
        assert!(!line.contains(['\n', '\r']), "{line:?}");
        let json: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(json["title"], "a\nb\r\u{2028}</script>");
    }
}
