//! Places for requests that are being read and prepared, off the async threads: what no place is
//! free for is turned away before it is parsed, so that a crowd of large bodies cannot pile up
//! behind the blocking threads.
//!
//! Deliberately absent: the places in the engine's queue (`Handle::submit`).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{ApiError, ErrorCode};
use crate::config::EngineConfig;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Preparing {
    places: Arc<Semaphore>,
}

impl Preparing {
    /// As many places as the engine has for requests: more could not be queued after they are
    /// prepared.
    pub fn new(engine: &EngineConfig) -> Preparing {
        Preparing { places: Arc::new(Semaphore::new((engine.parallel + engine.queue_capacity) as usize)) }
    }

    /// A place for one request.
    ///
    /// # Errors
    /// `engine_busy` when none is free.
    pub fn enter(&self) -> Result<Place, ApiError> {
        let busy = |_| ApiError::new(ErrorCode::EngineBusy, "too many requests are being prepared");
        Arc::clone(&self.places).try_acquire_owned().map(|permit| Place { permit: Arc::new(permit) }).map_err(busy)
    }

    /// Runs `work` in a place of its own.
    ///
    /// # Errors
    /// `engine_busy` when no place is free; what `work` gives back.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.enter()?.run(work).await
    }
}

/// The place of a request that is being prepared, in several pieces of work or in one.
#[derive(Clone, Debug)]
pub struct Place {
    permit: Arc<OwnedSemaphorePermit>,
}

impl Place {
    /// Runs `work` where it may block. The place is held until the work has ended, also when the
    /// client has left.
    ///
    /// # Errors
    /// What `work` gives back.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = Arc::clone(&self.permit);
        let held = move || {
            let result = work();
            drop(place);
            result
        };
        tokio::task::spawn_blocking(held).await.unwrap_or_else(|error| {
            let message = "the request could not be prepared";
            Err(ApiError::new(ErrorCode::Internal, message).with_diagnostic(error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::config::Profile;

    fn one_place() -> Preparing {
        let mut engine = Profile::demo().engine;
        (engine.parallel, engine.queue_capacity) = (1, 0);
        Preparing::new(&engine)
    }

    #[tokio::test]
    async fn a_crowd_of_requests_is_turned_away_before_it_is_parsed() {
        let preparing = one_place();
        let (release, wait) = mpsc::channel::<()>();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let first = preparing.clone();
        let slow = tokio::spawn(async move {
            let work = move || {
                begun.send(()).unwrap();
                wait.recv().unwrap();
                Ok("done")
            };
            first.run(work).await
        });
        begins.await.unwrap();
        let turned_away = preparing.run(|| -> Result<(), ApiError> { panic!("there is no place") }).await;
        assert_eq!(turned_away.unwrap_err().code(), ErrorCode::EngineBusy);
        release.send(()).unwrap();
        assert_eq!(slow.await.unwrap().unwrap(), "done");
        assert_eq!(preparing.run(|| Ok("next")).await.unwrap(), "next");
    }

    #[tokio::test]
    async fn a_fault_while_preparing_gives_its_place_back() {
        let preparing = one_place();
        let fault = preparing.run(|| -> Result<(), ApiError> { panic!("a fault") }).await;
        assert_eq!(fault.unwrap_err().code(), ErrorCode::Internal);
        assert_eq!(preparing.run(|| Ok(1)).await.unwrap(), 1);
    }
}
