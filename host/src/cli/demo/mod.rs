//! `formwork demo`: the whole path on this machine, over HTTP, checked and measured.
//!
//! It ends with status 0 only if every answer was valid for its format.

mod answers;
mod crowd;
mod house;
mod measure;
mod requests;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use super::client::Client;
use super::{model, remote};
use crate::build;
use crate::models;
use crate::registry::PluginName;
use answers::ask;
use house::House;
use measure::Figures;

/// Where `make plugins` puts the ticket plugin.
const EXAMPLES_DIR: &str = "dist/examples";

/// The ticket plugin's crate, built when there is no component of it.
const TICKET_CRATE: &str = "examples/ticket";

#[derive(Args, Debug)]
#[command(
    after_help = "Run it in a checkout after `make plugins`, or just say `make demo`.
Examples:
  formwork demo
  formwork demo --figures           the numbers only, as JSON
  formwork demo --keep              leave the server running afterwards"
)]
pub(super) struct DemoArgs {
    /// The model: a path or a known name, which is fetched if it is not here.
    #[arg(long, env = "FORMWORK_MODEL", default_value = "smollm2")]
    model: String,
    /// Stock plugins. Default: dist/plugins.
    #[arg(long, env = "FORMWORK_PLUGINS_DIR", value_name = "DIR")]
    plugins_dir: Option<PathBuf>,
    /// The ticket plugin's component. Default: built from examples/ticket if it is not in
    /// dist/examples.
    #[arg(long, value_name = "FILE")]
    ticket: Option<PathBuf>,
    /// Requests at one time in the last part.
    #[arg(long, default_value_t = 8, value_name = "N")]
    concurrent: usize,
    /// Print only the figures, as JSON.
    #[arg(long)]
    figures: bool,
    /// Keep serving afterwards, until SIGINT or SIGTERM.
    #[arg(long)]
    keep: bool,
    /// Port to serve on; 0 lets the system choose.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// The person watching; silent for `--figures`.
struct Screen {
    silent: bool,
}

impl Screen {
    fn line(&self, text: impl AsRef<str>) {
        if !self.silent {
            println!("{}", text.as_ref());
        }
    }

    /// Text as it streams: no line end, shown at once.
    fn text(&self, text: &str) {
        if !self.silent {
            print!("{}", super::table::printable(text));
            // A closed pipe is noticed by the next line.
            let _ = std::io::stdout().flush();
        }
    }

    fn heading(&self, text: impl AsRef<str>) {
        self.line(format!("\n── {}", text.as_ref()));
    }
}

pub(super) fn run(arguments: &DemoArgs) -> Result<()> {
    super::start_logging("warn");
    let screen = Screen {
        silent: arguments.figures,
    };
    let started = Instant::now();
    let ticket = ticket_component(arguments.ticket.as_deref())?;
    if models::known(&arguments.model).is_some() {
        model::pull(&arguments.model)?;
    }
    let house = House::start(
        &arguments.model,
        arguments.plugins_dir.clone(),
        arguments.port,
    )?;
    screen.heading(format!(
        "serving {} on {}",
        house.model_id(),
        house.address()
    ));
    screen.line(format!("up after {:.1} s", started.elapsed().as_secs_f64()));
    let shown = show(&house, &ticket, arguments.concurrent, &screen);
    if let Ok(figures) = &shown {
        match arguments.figures {
            true => println!("{}", serde_json::to_string_pretty(&figures.json())?),
            false => figures.print(),
        }
    }
    if arguments.keep && shown.is_ok() {
        screen.line(format!(
            "\nstill serving on {}; Ctrl-C ends it",
            house.address()
        ));
        house.wait_for_signal();
    }
    house.stop()?;
    shown?;
    screen.line("\nevery answer was valid; the server has stopped");
    Ok(())
}

/// The demo's parts, one after another.
fn show(house: &House, ticket: &Path, concurrent: usize, screen: &Screen) -> Result<Figures> {
    let client = house.client();
    let mut figures = Figures::new(house.model_id());
    warm_up(&client, house.model_id())?;
    let name = upload(&client, ticket, screen, house.model_id(), &mut figures)?;
    show_ticket(&client, &name, screen, house.model_id(), &mut figures)?;
    show_schema(&client, screen, house.model_id())?;
    screen.heading(format!(
        "{concurrent} requests at once, half through plugins, half free"
    ));
    measure::single_streams(&client, house.model_id(), &name, &mut figures)?;
    measure::crowds(&client, house.model_id(), &name, concurrent, &mut figures)?;
    for line in figures
        .crowds
        .iter()
        .take(1)
        .flat_map(|crowd| crowd.summary())
    {
        screen.line(line);
    }
    figures.read_metrics(&client.get_text("/metrics")?);
    ensure!(
        figures.unmasked_tokens == Some(0),
        "formwork_unmasked_tokens_total is {:?}, not 0",
        figures.unmasked_tokens
    );
    Ok(figures)
}

/// The first request pays for what is loaded lazily; it is not measured.
fn warm_up(client: &Client, model: &str) -> Result<()> {
    ask(client, &requests::free(model, "Say hello.", 8), &mut |_| {})?;
    Ok(())
}

/// Publishes the ticket plugin and asks once, measuring from the upload to the first token.
fn upload(
    client: &Client,
    ticket: &Path,
    screen: &Screen,
    model: &str,
    figures: &mut Figures,
) -> Result<PluginName> {
    screen.heading("a plugin is uploaded over HTTP: no rebuild, no restart");
    let file = ticket.file_name().unwrap_or_default().to_string_lossy();
    let (name, version) = PluginName::from_file_name(&file)
        .with_context(|| format!("{file} is not named NAMESPACE--NAME@VERSION.wasm"))?;
    let bytes = std::fs::read(ticket).with_context(|| ticket.display().to_string())?;
    let started = Instant::now();
    let record = remote::upload(client, &name, &version, &bytes)?;
    let published = started.elapsed();
    let answer = ask(
        client,
        &requests::ticket(model, &name, requests::MESSAGES[0]),
        &mut |_| {},
    )?;
    let first_token = answer.first_token.context("the first answer is empty")?;
    figures.upload_to_first_use = Some(published + first_token);
    screen.line(format!(
        "{name}@{version}  {} bytes  sha256:{}…  published in {} ms, used {} ms later",
        bytes.len(),
        record["digest"]
            .as_str()
            .unwrap_or_default()
            .chars()
            .take(12)
            .collect::<String>(),
        published.as_millis(),
        first_token.as_millis(),
    ));
    Ok(name)
}

/// Streams one ticket and shows the fields.
fn show_ticket(
    client: &Client,
    name: &PluginName,
    screen: &Screen,
    model: &str,
    figures: &mut Figures,
) -> Result<()> {
    let message = requests::MESSAGES[1];
    screen.heading("a bank's support message becomes a ticket");
    screen.line(format!("  {message}\n"));
    let body = requests::ticket(model, name, message);
    let answer = ask(client, &body, &mut |text| screen.text(text))?;
    screen.line("\n");
    for field in &answer.fields {
        screen.line(format!(
            "  {:<12} {:<44} {} tokens, {} forced, {} attempt(s)",
            field["name"].as_str().unwrap_or("?"),
            field["value"].to_string(),
            field["tokens"],
            field["forced"],
            field["attempts"],
        ));
    }
    requests::check_ticket(&answer.text)?;
    figures.forced_share = answer.forced_share();
    Ok(())
}

fn show_schema(client: &Client, screen: &Screen, model: &str) -> Result<()> {
    screen.heading("response_format: json_schema, as any OpenAI client sends it");
    let answer = ask(client, &requests::schema(model), &mut |text| {
        screen.text(text)
    })?;
    screen.line("");
    requests::check_schema(&answer.text)
}

/// The component to upload: the one named, else one already built, else built now.
fn ticket_component(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let built = std::fs::read_dir(EXAMPLES_DIR)
        .into_iter()
        .flatten()
        .flatten();
    let mut built = built.map(|entry| entry.path());
    let is_ticket = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        PluginName::from_file_name(&file).is_some_and(|(name, _)| name.name() == "ticket")
    };
    if let Some(path) = built.find(is_ticket) {
        return Ok(path);
    }
    if !Path::new(TICKET_CRATE).is_dir() {
        bail!("no ticket plugin in {EXAMPLES_DIR} and no {TICKET_CRATE} here: give --ticket FILE");
    }
    let built = build::build(
        &[PathBuf::from(TICKET_CRATE)],
        Some(Path::new(EXAMPLES_DIR)),
    )?;
    Ok(built[0].path.clone())
}

/// Milliseconds as JSON; null where nothing was measured.
fn ms(duration: Option<Duration>) -> Value {
    duration.map_or(Value::Null, |d| {
        json!((d.as_secs_f64() * 1e5).round() / 1e2)
    })
}

/// Tokens per second.
fn rate(tokens: u64, wall: Duration) -> f64 {
    tokens as f64 / wall.as_secs_f64().max(f64::EPSILON)
}
