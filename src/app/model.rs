//! The model file: the one that the profile names, or the demo model inside the binary written out
//! for llama.cpp, which loads from paths alone; and the projector beside it. Their headers are
//! checked here, before any C++ sees them.

use std::path::{Path, PathBuf};

use crate::config::plan::{ImageSizes, ModelSizes};
use crate::config::{ModelConfig, Projector, VisionConfig};
use crate::gguf::{Gguf, GgufError, ModelFacts, ProjectorFacts, VocabFacts, embedded};
use crate::units::Bytes;

use super::failure::Failure;

/// A model file on disk. The embedded model's copy goes away when this is dropped.
pub struct ModelFile {
    path: PathBuf,
    copy: Option<embedded::EmbeddedFile>,
}

impl ModelFile {
    pub fn locate(config: &ModelConfig) -> Result<ModelFile, Failure> {
        if let Some(path) = &config.path {
            return Ok(ModelFile { path: path.clone(), copy: None });
        }
        let copy = embedded::write().map_err(|e| {
            Failure::Unavailable(format!("the demo model could not be written to the folder for temporary files: {e}"))
        })?;
        Ok(ModelFile { path: copy.path().to_owned(), copy: Some(copy) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's name without its ending.
    pub fn stem(&self) -> String {
        self.path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
    }

    /// How people call it.
    pub fn display(&self) -> String {
        if self.copy.is_some() { embedded::NAME.to_owned() } else { self.path.display().to_string() }
    }
}

/// What the header of a model file says.
pub struct Header {
    pub gguf: Gguf,
    pub model: ModelFacts,
    pub vocab: VocabFacts,
}

impl Header {
    pub fn read(file: &ModelFile) -> Result<Header, Failure> {
        let path = file.display();
        let read = || -> Result<Header, GgufError> {
            let gguf = Gguf::open(file.path())?;
            let model = ModelFacts::from_gguf(&gguf)?;
            let vocab = VocabFacts::from_gguf(&gguf)?;
            Ok(Header { gguf, model, vocab })
        };
        read().map_err(|error| refused(&path, error))
    }

    /// The sizes that the memory plan works with.
    pub fn sizes(&self) -> ModelSizes {
        let tensor = |name: &str| self.gguf.tensors.iter().find(|t| t.name == name).map(|t| Bytes(t.bytes));
        let model = &self.model;
        ModelSizes {
            trunk: model.tensor_bytes.trunk,
            token_embedding: tensor("token_embd.weight").unwrap_or(Bytes(0)),
            output_head: tensor("output.weight"),
            mtp: model.tensor_bytes.mtp,
            recurrent: model.recurrent.map(|r| r.conv_bytes + r.state_bytes),
            n_layer: model.n_layer,
            n_layer_mtp: model.n_layer_mtp,
            n_layer_attention: model.n_layer_attention,
            n_embd: model.n_embd,
            n_ff: model.n_ff,
            n_vocab: model.n_vocab,
            n_head: model.n_head,
            n_head_kv: model.n_head_kv,
            head_dim_k: model.head_dim_k,
            head_dim_v: model.head_dim_v,
            n_ctx_train: model.n_ctx_train,
            images: None,
        }
    }
}

fn refused(path: &str, error: GgufError) -> Failure {
    match error {
        GgufError::Io { source, .. } => Failure::Unavailable(format!("cannot read {path}: {source}")),
        malformed => Failure::Malformed(format!("{path}: {malformed}")),
    }
}

/// The projector that the profile gives the model.
pub struct ProjectorFile {
    file: ModelFile,
    pub facts: ProjectorFacts,
}

impl ProjectorFile {
    /// `None`: the model gets no images.
    pub fn read(config: &ModelConfig, header: &Header) -> Result<Option<ProjectorFile>, Failure> {
        let file = match config.projector() {
            Projector::Auto | Projector::Off => return Ok(None),
            Projector::File(path) => ModelFile { path, copy: None },
            Projector::Embedded => {
                let copy = embedded::write_projector().map_err(|e| {
                    Failure::Unavailable(format!("the demo projector could not be written to a temporary file: {e}"))
                })?;
                ModelFile { path: copy.path().to_owned(), copy: Some(copy) }
            }
        };
        let model = &header.model;
        let read = || -> Result<ProjectorFacts, GgufError> {
            let facts = ProjectorFacts::from_gguf(&Gguf::open(file.path())?)?;
            facts.check_width(model.n_embd)?;
            Ok(facts)
        };
        let name = if file.copy.is_some() { embedded::PROJECTOR_NAME.to_owned() } else { file.display() };
        let facts = read().map_err(|error| refused(&name, error))?;
        let sections = format!("{}.rope.dimension_sections", model.architecture);
        if !header.gguf.metadata.contains_key(&sections) {
            let fix = "take another model, or model.mmproj = \"none\"";
            return Err(Failure::Usage(format!("{name}: the model has no {sections}: it takes no images; {fix}")));
        }
        Ok(Some(ProjectorFile { file, facts }))
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// How people call it.
    pub fn display(&self) -> String {
        if self.file.copy.is_some() { embedded::PROJECTOR_NAME.to_owned() } else { self.file.display() }
    }

    /// The sizes that the memory plan works with.
    pub fn sizes(&self, vision: &VisionConfig) -> ImageSizes {
        let facts = &self.facts;
        let sizes = ImageSizes {
            weights: facts.tensor_bytes,
            width: facts.width,
            n_ff: facts.n_ff,
            n_head: facts.n_head,
            token_px: facts.token_px,
            max_tokens: facts.max_tokens,
            on_gpu: false,
            cache: Bytes(0),
        };
        sizes.placed(vision)
    }
}

impl Header {
    /// `sizes` with what images take.
    pub fn sizes_with(&self, projector: Option<&ProjectorFile>, vision: &VisionConfig) -> ModelSizes {
        ModelSizes { images: projector.map(|projector| projector.sizes(vision)), ..self.sizes() }
    }
}
