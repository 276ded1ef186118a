//! Pictures of a request: got from where it says they are, bounded, decoded, brought to the size
//! that the model takes.
//!
//! Fetching happens on the async threads, all else off them. What pictures are and what a URL may
//! reach is `crate::picture`'s business, where they go in a prompt the chat layer's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::Semaphore;

use super::error::{ApiError, ErrorCode};
use super::preparing::Place;
use crate::chat::pictures::{Detail, PictureRef, Source, finish};
use crate::chat::{ChatRequest, RequestError};
use crate::config::PicturesConfig;
use crate::engine::{Picture, VisionFacts};
use crate::picture::{FetchRules, Fetcher, Limits, PictureError, Probe, data_uri, fetch, file};
use crate::telemetry::Metrics;

/// Pictures of one request that are fetched at once.
const FETCHES: usize = 4;

/// Gets the pictures of requests. Cheap to clone.
#[derive(Clone)]
pub struct Pictures {
    rules: Arc<Rules>,
    fetcher: Fetcher,
    /// Places to decode in, over all requests: decoding takes a core and several times the
    /// picture's memory, so a crowd of large pictures would take all of both.
    decoders: Arc<Semaphore>,
    metrics: Metrics,
}

struct Rules {
    /// `None`: the model sees nothing.
    vision: Option<VisionFacts>,
    limits: Limits,
    max_pictures: usize,
    total_pixels: u64,
    low_tokens: u32,
    decoders: usize,
    folder: Option<PathBuf>,
}

/// Where a picture's bytes are, after fetching.
enum Found {
    Here(Vec<u8>),
    Elsewhere(Source),
}

struct Waiting {
    param: String,
    detail: Detail,
    found: Found,
}

struct File {
    param: String,
    detail: Detail,
    bytes: Vec<u8>,
}

impl Pictures {
    pub fn new(config: &PicturesConfig, vision: Option<VisionFacts>, metrics: Metrics) -> Pictures {
        let fetcher = Fetcher::new(FetchRules {
            on: config.fetch,
            hosts: config.fetch_hosts.clone(),
            // The profile was checked.
            ports: config.ports().unwrap_or_default(),
            time: Duration::from_secs(config.fetch_seconds.into()),
            max_bytes: config.max_bytes,
        });
        let rules = Rules {
            vision,
            limits: Limits { bytes: config.max_bytes, side: config.max_side, pixels: config.max_pixels },
            max_pictures: config.max_per_request as usize,
            total_pixels: config.total_pixels,
            low_tokens: config.low_tokens,
            decoders: config.decoders as usize,
            folder: config.dir.clone(),
        };
        Pictures { decoders: Arc::new(Semaphore::new(rules.decoders)), rules: Arc::new(rules), fetcher, metrics }
    }

    /// For tests, whose servers stand on this machine.
    pub fn with_exempt(mut self, addresses: &[std::net::SocketAddr]) -> Pictures {
        self.fetcher = self.fetcher.with_exempt(addresses);
        self
    }

    /// Are pictures taken at all, and so many.
    ///
    /// # Errors
    /// The first that is not.
    pub(super) fn admit(&self, pictures: &[PictureRef]) -> Result<(), ApiError> {
        let Some(first) = pictures.first() else { return Ok(()) };
        let most = self.rules.max_pictures;
        let error = if self.rules.vision.is_none() {
            let message =
                "this model has no vision; remove the pictures, or serve it with its projector (`model.mmproj`)";
            RequestError::no_vision(&*first.param, message)
        } else if let Some(over) = pictures.get(most) {
            let n = pictures.len();
            let message = format!("the request has {n} pictures, {most} are taken (`pictures.max_per_request`)");
            RequestError::too_large(&*over.param, message)
        } else {
            return Ok(());
        };
        Err(self.refused(error))
    }

    /// The request with its pictures, got and decoded. `place` is the request's own.
    ///
    /// # Errors
    /// The first picture that is not taken.
    pub(super) async fn load(&self, request: ChatRequest<PictureRef>, place: &Place) -> Result<ChatRequest, ApiError> {
        let ChatRequest { conversation, pictures, options, constraint, ignored } = request;
        let pictures = self.decoded(pictures, place).await?;
        Ok(ChatRequest { conversation, pictures, options, constraint, ignored })
    }

    /// All pictures, in order.
    async fn decoded(&self, pictures: Vec<PictureRef>, place: &Place) -> Result<Vec<Arc<Picture>>, ApiError> {
        self.admit(&pictures)?;
        if pictures.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = self.fetcher.deadline();
        let found: Result<Vec<Waiting>, RequestError> =
            stream::iter(pictures).map(|picture| self.find(picture, deadline)).buffered(FETCHES).try_collect().await;
        let found = found.map_err(|error| self.refused(error))?;
        let rules = Arc::clone(&self.rules);
        let files = place.run(move || Ok(rules.files(found))).await?.map_err(|error| self.refused(error))?;
        let decoded = stream::iter(files).map(|file| self.decode(file, place));
        decoded.buffered(self.rules.decoders).try_collect().await
    }

    async fn find(&self, picture: PictureRef, deadline: tokio::time::Instant) -> Result<Waiting, RequestError> {
        let PictureRef { param, source, detail } = picture;
        let found = match source {
            Source::Url(url) if fetch::is_http_url(&url) => {
                let started = Instant::now();
                let fetched = self.fetcher.fetch(&url, deadline).await;
                let bytes = fetched.map_err(|error| RequestError::picture(&*param, &error))?;
                self.metrics.picture_fetched(started.elapsed());
                Found::Here(bytes)
            }
            other => Found::Elsewhere(other),
        };
        Ok(Waiting { param, detail, found })
    }

    async fn decode(&self, file: File, place: &Place) -> Result<Arc<Picture>, ApiError> {
        let permit = Arc::clone(&self.decoders).acquire_owned().await;
        let permit = permit.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
        let (rules, metrics) = (Arc::clone(&self.rules), self.metrics.clone());
        let decoded = place.run(move || {
            let decoded = rules.decode(&file, &metrics);
            drop(permit);
            Ok(decoded)
        });
        decoded.await?.map(Arc::new).map_err(|error| self.refused(error))
    }

    fn refused(&self, error: RequestError) -> ApiError {
        let error = ApiError::from(error);
        self.metrics.picture_refused(error.code().info().name);
        error
    }
}

impl Rules {
    /// The files, with their headers checked before any of them is decoded.
    fn files(&self, found: Vec<Waiting>) -> Result<Vec<File>, RequestError> {
        let mut files = Vec::with_capacity(found.len());
        let mut total = 0_u64;
        for Waiting { param, detail, found } in found {
            let told = |error: PictureError| RequestError::picture(&*param, &error);
            let bytes = match found {
                Found::Here(bytes) => bytes,
                Found::Elsewhere(source) => self.read(&source).map_err(told)?,
            };
            total = total.saturating_add(Probe::read(&bytes, &self.limits).map_err(told)?.n_pixels());
            if total > self.total_pixels {
                let most = self.total_pixels;
                let message = format!(
                    "with `{param}` the request has {total} pixels, {most} are taken (`pictures.total_pixels`)"
                );
                return Err(RequestError::too_large(param, message));
            }
            files.push(File { param, detail, bytes });
        }
        Ok(files)
    }

    fn read(&self, source: &Source) -> Result<Vec<u8>, PictureError> {
        let most = self.limits.bytes;
        match (source, &self.folder) {
            (Source::Url(url), _) if data_uri::is_data_uri(url) => data_uri::read(url, most),
            (Source::Base64(text), _) if data_uri::is_data_uri(text) => data_uri::read(text, most),
            (Source::Base64(text), _) => data_uri::read_base64(text, most),
            (Source::Url(url), Some(folder)) if file::is_file_url(url) => file::read(url, folder, most),
            (Source::Url(url), None) if file::is_file_url(url) => {
                let message =
                    "files of the server are not read (`pictures.dir` is none); send the picture as a data URI";
                Err(PictureError::not_fetched(message))
            }
            (Source::Url(_), _) => Err(PictureError::invalid(
                "it is no URL that is taken: write data:image/png;base64, in front of base64, or send an https:// or file:// URL",
            )),
        }
    }

    fn decode(&self, file: &File, metrics: &Metrics) -> Result<Picture, RequestError> {
        let File { param, detail, bytes } = file;
        let Some(vision) = &self.vision else {
            return Err(RequestError::no_vision(&**param, "this model has no vision"));
        };
        let started = Instant::now();
        let decode = || {
            let probe = Probe::read(bytes, &self.limits)?;
            Ok((probe, finish(probe.decode()?, vision, *detail, self.low_tokens)?))
        };
        let (probe, picture) = decode().map_err(|error: PictureError| RequestError::picture(&**param, &error))?;
        metrics.picture_decoded(probe.kind().as_str(), probe.n_pixels(), started.elapsed());
        Ok(picture)
    }
}
