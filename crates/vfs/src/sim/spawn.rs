//! Starting and joining simulated threads.

use std::io;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;

use super::chooser::ThreadId;
use super::context::{Body, Shared, SimThread, start, with};
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
    let Some(thread) = current() else { return Err(body) };
    let value = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&value);
    let body = Box::new(move || {
        let value = body();
        *slot.lock() = Some(value);
    });
    Ok(spawn_from(&thread, name, body, line).map(|(shared, id)| Joiner { shared, id, value }))
}

fn current() -> Option<Arc<SimThread>> {
    with(Arc::clone)
}

fn spawn_from(
    thread: &SimThread,
    name: &str,
    body: Body,
    line: &'static Location<'static>,
) -> io::Result<(Arc<Shared>, ThreadId)> {
    let shared = Arc::clone(&thread.shared);
    let (id, _) = start(&shared, name, body)?;
    thread.point("thread.spawn", line);
    Ok((shared, id))
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
