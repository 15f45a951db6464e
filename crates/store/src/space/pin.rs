//! What is held back from reuse for who walks a manifest.

use std::fmt;

use super::Space;

/// While it lives, no block that the newest durable manifest reached when the pin was taken is overwritten or
/// given back.
pub struct SpacePin {
    pub(super) space: Space,
    /// Its number.
    manifest: u64,
}

impl Space {
    /// Holds back reuse of what the newest durable manifest reaches: for backup and verify, which walk it.
    #[must_use = "dropping the pin lets go"]
    pub fn pin(&self) -> SpacePin {
        let manifest = self.0.allocator.lock().pin();
        SpacePin { space: self.clone(), manifest }
    }

    /// True while somebody holds back reuse: what is moved elsewhere does not come back.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.0.allocator.lock().is_pinned()
    }
}

impl SpacePin {
    /// Of the manifest that it holds, in this life of the space: what [`Earlier`](super::Earlier) goes by.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.manifest
    }
}

impl fmt::Debug for SpacePin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpacePin({})", self.manifest)
    }
}

impl Drop for SpacePin {
    fn drop(&mut self) {
        if self.space.0.allocator.lock().unpin(self.manifest) > 0 {
            self.space.space_returned();
        }
    }
}
