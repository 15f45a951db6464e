//! Starting and joining simulated threads.

use std::io;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use super::chooser::ThreadId;
use super::context::{Shared, SimThread, start, with};
use super::scheduler::WaitOn;
use super::trace::Place;

/// Waits for the end of a simulated thread.
pub(crate) struct Joiner<T> {
    shared: Arc<Shared>,
    id: ThreadId,
    value: Arc<Mutex<Option<T>>>,
}

/// Starts a thread in the simulation of the calling thread; gives the body back if that is not simulated.
pub(crate) fn inside<T: Send + 'static, B: FnOnce() -> T + Send + 'static>(
    name: &str,
    body: B,
    line: &'static Location<'static>,
) -> Result<io::Result<Joiner<T>>, B> {
    let mut body = Some(body);
    let joiner = with(|thread| {
        let body = body.take().expect("asked once");
        spawn_from(thread, name, body, line)
    });
    joiner.ok_or_else(|| body.expect("not taken outside"))
}

fn spawn_from<T: Send + 'static>(
    thread: &SimThread,
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
    line: &'static Location<'static>,
) -> io::Result<Joiner<T>> {
    let shared = Arc::clone(&thread.shared);
    let value = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&value);
    let (id, _) = start(&shared, name, move || {
        let value = body();
        *slot.lock() = Some(value);
    })?;
    thread.point("thread.spawn", line);
    Ok(Joiner { shared, id, value })
}

impl<T> Joiner<T> {
    #[track_caller]
    pub(crate) fn join(self) -> T {
        let line = Location::caller();
        with(|thread| {
            thread.point("thread.join", line);
            while !self.is_finished() {
                thread.wait(Place { name: "thread.joining", line }, WaitOn::End(self.id), None);
            }
        });
        self.value.lock().take().expect("a thread that has ended left its value; a panic ends the simulation")
    }

    pub(crate) fn is_finished(&self) -> bool {
        !self.shared.state.lock().live.contains(&self.id)
    }
}
