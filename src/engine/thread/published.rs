//! What the engine thread shows of itself to the async side.

use std::sync::Arc;

use tokio::sync::watch;

use super::stats::EngineStats;
use super::watchdog::Watchdog;
use crate::engine::prefix::cache::CacheView;

/// Written by the engine thread after each step, read without a lock.
pub(super) struct Published {
    pub stats: watch::Sender<EngineStats>,
    pub cache: watch::Sender<Arc<CacheView>>,
    pub watchdog: Arc<Watchdog>,
}
