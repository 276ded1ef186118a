//! What requests may bring as images, and from where. How images are encoded is `[vision]`'s business.

use std::path::PathBuf;

/// Bounds of images, and places that they may come from besides the request itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ImagesConfig {
    pub max_per_request: u32,
    /// Of one file.
    pub max_bytes: u64,
    /// The longer side of an image.
    pub max_side: u32,
    pub max_pixels: u64,
    /// Of all images of a request.
    pub total_pixels: u64,
    /// Most tokens of an image with `detail: "low"`.
    pub low_tokens: u32,
    /// Images that are decoded at once.
    pub decoders: u32,
    /// Largest body where the model sees images.
    pub body_bytes: u64,
    /// Folder of `file://` URLs; `None`: they are refused.
    pub dir: Option<PathBuf>,
    /// Fetch `http://` and `https://` URLs.
    pub fetch: bool,
    /// Empty: all.
    pub fetch_hosts: Vec<String>,
    pub fetch_ports: Vec<String>,
    /// For all images of a request together.
    pub fetch_seconds: u32,
}

impl Default for ImagesConfig {
    fn default() -> ImagesConfig {
        ImagesConfig {
            max_per_request: 64,
            max_bytes: 32 << 20,
            max_side: 16_384,
            max_pixels: 50_000_000,
            total_pixels: 100_000_000,
            low_tokens: 256,
            decoders: 2,
            body_bytes: 64 << 20,
            dir: None,
            fetch: false,
            fetch_hosts: Vec::new(),
            fetch_ports: vec!["80".to_owned(), "443".to_owned()],
            fetch_seconds: 10,
        }
    }
}

impl ImagesConfig {
    /// `fetch_ports` as numbers.
    ///
    /// # Errors
    /// The first entry that is no port.
    pub fn ports(&self) -> Result<Vec<u16>, &str> {
        self.fetch_ports
            .iter()
            .map(|text| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or(text.as_str()))
            .collect()
    }
}
