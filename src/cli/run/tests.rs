//! A conversation over a scripted model: what goes where, what is remembered, what is taken back.

use std::io::Write;
use std::sync::mpsc;

use super::*;
use crate::chat::ChatTemplate;
use crate::config::Profile;
use crate::engine::{Engine, EngineSettings, FakeRunner, Joiner, VisionFacts};
use crate::telemetry::Metrics;

const CHATML: &str = "{% macro show(c) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}\
                      {% if p.type == 'image' %}<|image_pad|>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}\
                      {% for m in messages %}<|im_start|>{{ m.role }}\n{{ show(m.content) }}<|im_end|>\n{% endfor %}\
                      <|im_start|>assistant\n<think>\n";

/// Sends what is written to the test.
struct Wire(mpsc::Sender<Vec<u8>>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A screen without colours and what it shows on its two streams.
struct Shown {
    out: mpsc::Receiver<Vec<u8>>,
    err: mpsc::Receiver<Vec<u8>>,
}

fn screen() -> (Screen, Shown) {
    let ((out, shown_out), (err, shown_err)) = (mpsc::channel(), mpsc::channel());
    let screen = Screen::new(Box::new(Wire(out)), Box::new(Wire(err)), false, true);
    (screen, Shown { out: shown_out, err: shown_err })
}

fn text(stream: &mpsc::Receiver<Vec<u8>>) -> String {
    String::from_utf8(stream.try_iter().flatten().collect()).unwrap()
}

async fn conversation(answers: &[(&str, &str)], system: Option<&str>) -> (Conversation, Joiner) {
    let answers = answers.iter().map(|(prompt, answer)| ((*prompt).to_owned(), (*answer).to_owned())).collect();
    let runner = FakeRunner::scripted(answers).with_vision(64);
    let settings = EngineSettings { queue_capacity: 2, prefill_chunk_tokens: 64, image_cache_bytes: 0 };
    let spawn = move || Engine::spawn(move || Ok::<_, String>(runner.loaded()), settings, Metrics::new());
    let (handle, joiner) = tokio::task::spawn_blocking(spawn).await.unwrap().unwrap();
    let mut profile = Profile::demo();
    profile.sampling.temperature = 0.0;
    let template = ChatTemplate::new(CHATML.to_owned(), "", "", profile.limits.template_fuel).unwrap();
    (
        Conversation::new(
            profile,
            handle.clone(),
            template,
            crate::chat::constraint::grammars(handle.tokenizer()).unwrap(),
            system,
        ),
        joiner,
    )
}

#[tokio::test]
async fn the_answer_goes_to_stdout_and_everything_else_to_stderr() {
    let (mut chat, _joiner) = conversation(&[("one", "let me see\n</think>\n\nHello.")], None).await;
    let (mut screen, shown) = screen();
    assert_eq!(chat.say("one".to_owned(), &mut screen).await.unwrap(), Ended::Whole);
    assert_eq!(text(&shown.out), "Hello.\n");
    let err = text(&shown.err);
    assert!(err.contains("let me see"), "{err}");
    assert!(err.contains("prompt tokens") && err.contains("generated"), "{err}");
}

#[tokio::test]
async fn what_was_said_is_remembered_until_reset() {
    // The longest prompt is tried first: it holds what was said before.
    let answers = [
        ("Alpha.<|im_end|>\n<|im_start|>user\ntwo", "</think>both"),
        ("one", "</think>Alpha."),
        ("two", "</think>alone"),
    ];
    let (mut chat, _joiner) = conversation(&answers, None).await;
    let (mut screen, shown) = screen();
    for message in ["one", "two"] {
        chat.say(message.to_owned(), &mut screen).await.unwrap();
    }
    chat.reset();
    chat.say("two".to_owned(), &mut screen).await.unwrap();
    assert_eq!(text(&shown.out), "Alpha.\nboth\nalone\n");
}

#[tokio::test]
async fn the_system_message_survives_a_reset() {
    let answers = [("<|im_start|>system\nbe brief<|im_end|>", "</think>brief"), ("hi", "</think>long")];
    let (mut chat, _joiner) = conversation(&answers, Some("be brief")).await;
    let (mut screen, shown) = screen();
    chat.reset();
    chat.say("hi".to_owned(), &mut screen).await.unwrap();
    assert_eq!(text(&shown.out), "brief\n");
}

#[tokio::test]
async fn a_message_that_does_not_fit_is_taken_back() {
    let (mut chat, _joiner) = conversation(&[("hi", "</think>Hello.")], None).await;
    let (mut screen, shown) = screen();
    let failure = chat.say("x".repeat(1 << 20), &mut screen).await.unwrap_err();
    assert!(matches!(failure, Failure::Usage(_)), "{failure}");
    chat.say("hi".to_owned(), &mut screen).await.unwrap();
    assert_eq!(text(&shown.out), "Hello.\n");
}

/// An image in a file, of one colour.
fn image(folder: &std::path::Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    image::RgbImage::from_pixel(96, 96, image::Rgb([250, 0, 0])).save(&path).unwrap();
    path
}

fn prompt_tokens(err: &str) -> Vec<usize> {
    let counts = err.split('[').skip(1).map(|line| line.split(' ').next().unwrap().parse().unwrap());
    counts.collect()
}

#[tokio::test]
async fn images_go_in_front_of_the_first_message_and_stay_in_the_conversation() {
    let folder = tempfile::tempdir().unwrap();
    let files = [image(folder.path(), "a.png"), image(folder.path(), "b.jpg")];
    let (mut chat, _joiner) = conversation(&[("", "</think>Red.")], None).await;
    let (mut screen, shown) = screen();
    let vision = chat.handle().facts().vision.clone();
    let images = images::load(&files, vision.as_ref(), &Profile::demo().images).unwrap();
    chat.say("hi".to_owned(), &mut screen).await.unwrap();
    chat.reset();
    chat.show(images);
    // It is taken back with its images, which then go with the next one.
    let failure = chat.say("x".repeat(1 << 20), &mut screen).await.unwrap_err();
    assert!(matches!(failure, Failure::Usage(_)), "{failure}");
    chat.say("hi".to_owned(), &mut screen).await.unwrap();
    chat.say("hi".to_owned(), &mut screen).await.unwrap();
    let counts = prompt_tokens(&text(&shown.err));
    assert_eq!(counts[1], counts[0] + 18, "two images of 3 x 3 tokens");
    assert!(counts[2] > counts[1], "{counts:?}");
}

#[test]
fn a_file_that_is_no_image_and_a_model_without_vision_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("a.txt");
    std::fs::write(&text, "hello").unwrap();
    let (config, vision) = (Profile::demo().images, VisionFacts { token_px: 32, min_tokens: 1, max_tokens: 64 });
    let load = |file: &PathBuf, vision| images::load(std::slice::from_ref(file), vision, &config).unwrap_err();
    assert!(load(&text, Some(&vision)).to_string().contains("the data is text"));
    assert!(load(&text, None).to_string().contains("--mmproj"));
    assert!(matches!(load(&folder.path().join("none"), Some(&vision)), Failure::Unavailable(_)));
}
