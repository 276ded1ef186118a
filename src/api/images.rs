//! Images of a request: got from where it says they are, bounded, decoded, brought to the size
//! that the model takes.
//!
//! Fetching happens on the async threads, all else off them. What images are and what a URL may
//! reach is `crate::image`'s business, where they go in a prompt the chat layer's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::Semaphore;

use super::error::{ApiError, ErrorCode};
use super::preparing::Place;
use crate::chat::images::{Detail, ImageSource, Source, finish};
use crate::chat::{ChatRequest, RequestError};
use crate::config::ImagesConfig;
use crate::engine::{Image, VisionFacts};
use crate::image::{FetchRules, Fetcher, ImageRefusal, Limits, Probe, data_uri, fetch, file};
use crate::telemetry::Metrics;

/// Images of one request that are fetched at once.
const FETCHES: usize = 4;

/// Gets the images of requests. Cheap to clone.
#[derive(Clone)]
pub struct Images {
    rules: Arc<Rules>,
    fetcher: Fetcher,
    /// Places to decode in, over all requests: decoding takes a core and several times the
    /// image's memory, so a crowd of large images would take all of both.
    decoders: Arc<Semaphore>,
    metrics: Metrics,
}

struct Rules {
    /// `None`: the model sees nothing.
    vision: Option<VisionFacts>,
    limits: Limits,
    max_images: usize,
    total_pixels: u64,
    low_tokens: u32,
    decoders: usize,
    folder: Option<PathBuf>,
}

/// Where an image's bytes are, after fetching.
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

impl Images {
    pub fn new(config: &ImagesConfig, vision: Option<VisionFacts>, metrics: Metrics) -> Images {
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
            max_images: config.max_per_request as usize,
            total_pixels: config.total_pixels,
            low_tokens: config.low_tokens,
            decoders: config.decoders as usize,
            folder: config.dir.clone(),
        };
        Images { decoders: Arc::new(Semaphore::new(rules.decoders)), rules: Arc::new(rules), fetcher, metrics }
    }

    /// For tests, whose servers stand on this machine.
    pub fn with_exempt(mut self, addresses: &[std::net::SocketAddr]) -> Images {
        self.fetcher = self.fetcher.with_exempt(addresses);
        self
    }

    /// Are images taken at all, and so many.
    ///
    /// # Errors
    /// The first that is not.
    pub(super) fn admit(&self, images: &[ImageSource]) -> Result<(), ApiError> {
        let Some(first) = images.first() else { return Ok(()) };
        let most = self.rules.max_images;
        let error = if self.rules.vision.is_none() {
            let message =
                "this model has no vision; remove the images, or serve it with its projector (`model.mmproj`)";
            RequestError::no_vision(&*first.param, message)
        } else if let Some(over) = images.get(most) {
            let n = images.len();
            let message = format!("the request has {n} images, {most} are taken (`images.max_per_request`)");
            RequestError::too_large(&*over.param, message)
        } else {
            return Ok(());
        };
        Err(self.refused(error))
    }

    /// The request with its images, got and decoded. `place` is the request's own.
    ///
    /// # Errors
    /// The first image that is not taken.
    pub(super) async fn load(&self, request: ChatRequest<ImageSource>, place: &Place) -> Result<ChatRequest, ApiError> {
        let ChatRequest { conversation, images, options, constraint, ignored } = request;
        let images = self.decoded(images, place).await?;
        Ok(ChatRequest { conversation, images, options, constraint, ignored })
    }

    /// All images, in order.
    async fn decoded(&self, images: Vec<ImageSource>, place: &Place) -> Result<Vec<Arc<Image>>, ApiError> {
        self.admit(&images)?;
        if images.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = self.fetcher.deadline();
        let found: Result<Vec<Waiting>, RequestError> =
            stream::iter(images).map(|image| self.find(image, deadline)).buffered(FETCHES).try_collect().await;
        let found = found.map_err(|error| self.refused(error))?;
        let rules = Arc::clone(&self.rules);
        let files = place.run(move || Ok(rules.files(found))).await?.map_err(|error| self.refused(error))?;
        let decoded = stream::iter(files).map(|file| self.decode(file, place));
        decoded.buffered(self.rules.decoders).try_collect().await
    }

    async fn find(&self, image: ImageSource, deadline: tokio::time::Instant) -> Result<Waiting, RequestError> {
        let ImageSource { param, source, detail } = image;
        let found = match source {
            Source::Url(url) if fetch::is_http_url(&url) => {
                let started = Instant::now();
                let fetched = self.fetcher.fetch(&url, deadline).await;
                let bytes = fetched.map_err(|error| RequestError::image(&*param, &error))?;
                self.metrics.image_fetched(started.elapsed());
                Found::Here(bytes)
            }
            other => Found::Elsewhere(other),
        };
        Ok(Waiting { param, detail, found })
    }

    async fn decode(&self, file: File, place: &Place) -> Result<Arc<Image>, ApiError> {
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
        self.metrics.image_refused(error.code().info().name);
        error
    }
}

impl Rules {
    /// The files, with their headers checked before any of them is decoded.
    fn files(&self, found: Vec<Waiting>) -> Result<Vec<File>, RequestError> {
        let mut files = Vec::with_capacity(found.len());
        let mut total = 0_u64;
        for Waiting { param, detail, found } in found {
            let told = |error: ImageRefusal| RequestError::image(&*param, &error);
            let bytes = match found {
                Found::Here(bytes) => bytes,
                Found::Elsewhere(source) => self.read(&source).map_err(told)?,
            };
            total = total.saturating_add(Probe::read(&bytes, &self.limits).map_err(told)?.n_pixels());
            if total > self.total_pixels {
                let most = self.total_pixels;
                let message =
                    format!("with `{param}` the request has {total} pixels, {most} are taken (`images.total_pixels`)");
                return Err(RequestError::too_large(param, message));
            }
            files.push(File { param, detail, bytes });
        }
        Ok(files)
    }

    fn read(&self, source: &Source) -> Result<Vec<u8>, ImageRefusal> {
        let most = self.limits.bytes;
        match (source, &self.folder) {
            (Source::Url(url), _) if data_uri::is_data_uri(url) => data_uri::read(url, most),
            (Source::Base64(text), _) if data_uri::is_data_uri(text) => data_uri::read(text, most),
            (Source::Base64(text), _) => data_uri::read_base64(text, most),
            (Source::Url(url), Some(folder)) if file::is_file_url(url) => file::read(url, folder, most),
            (Source::Url(url), None) if file::is_file_url(url) => {
                let message = "files of the server are not read (`images.dir` is none); send the image as a data URI";
                Err(ImageRefusal::not_fetched(message))
            }
            (Source::Url(_), _) => Err(ImageRefusal::invalid(
                "it is no URL that is taken: write data:image/png;base64, in front of base64, or send an https:// or file:// URL",
            )),
        }
    }

    fn decode(&self, file: &File, metrics: &Metrics) -> Result<Image, RequestError> {
        let File { param, detail, bytes } = file;
        let Some(vision) = &self.vision else {
            return Err(RequestError::no_vision(&**param, "this model has no vision"));
        };
        let started = Instant::now();
        let decode = || {
            let probe = Probe::read(bytes, &self.limits)?;
            Ok((probe, finish(probe.decode()?, vision, *detail, self.low_tokens)?))
        };
        let (probe, image) = decode().map_err(|error: ImageRefusal| RequestError::image(&**param, &error))?;
        metrics.image_decoded(probe.kind().as_str(), probe.n_pixels(), started.elapsed());
        Ok(image)
    }
}
