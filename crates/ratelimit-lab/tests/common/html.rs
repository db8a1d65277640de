//! A page of HTML, parsed as a browser does.

use html5ever::tendril::TendrilSink as _;
use markup5ever_rcdom::{Handle, NodeData, RcDom};

pub(crate) struct Html(RcDom);

/// An element: its name, its attributes, and the text in it.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Html {
    /// Parses a page, and asserts that it has no errors.
    #[track_caller]
    pub(crate) fn new(text: &str) -> Self {
        let mut options = html5ever::ParseOpts::default();
        options.tokenizer.exact_errors = true;
        options.tree_builder.exact_errors = true;
        let page = html5ever::parse_document(RcDom::default(), options).one(text);
        assert!(page.errors.borrow().is_empty(), "{:?}", page.errors.borrow());
        Self(page)
    }

    pub(crate) fn elements(&self) -> Vec<Element> {
        let mut elements = Vec::new();
        each(&self.0.document, &mut |node| elements.extend(element(node)));
        elements
    }

    /// The texts of all elements of this name.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        self.elements().into_iter().filter(|one| one.name == name).map(|one| one.text).collect()
    }

    /// The tables, whose first row is the header.
    pub(crate) fn tables(&self) -> Vec<Vec<Vec<String>>> {
        let mut tables: Vec<Vec<Vec<String>>> = Vec::new();
        for element in self.elements() {
            match &*element.name {
                "table" => tables.push(Vec::new()),
                "tr" => tables.last_mut().unwrap().push(Vec::new()),
                "th" | "td" => tables.last_mut().unwrap().last_mut().unwrap().push(element.text),
                _ => {}
            }
        }
        tables
    }

    /// The rows of the tables whose header begins with this, without the headers.
    pub(crate) fn rows(&self, begin: &[&str]) -> Vec<Vec<Vec<String>>> {
        let mut tables = self.tables();
        tables.retain(|table| table[0].iter().zip(begin).all(|(name, begin)| name.starts_with(begin)));
        tables.iter_mut().for_each(|table| drop(table.remove(0)));
        tables
    }
}

fn element(node: &Handle) -> Option<Element> {
    let NodeData::Element { name, attrs, .. } = &node.data else { return None };
    let mut text = String::new();
    each(node, &mut |node| {
        if let NodeData::Text { contents } = &node.data {
            text.push_str(&contents.borrow());
        }
    });
    let attributes = attrs.borrow();
    let attributes = attributes.iter().map(|one| (one.name.local.to_string(), one.value.to_string()));
    Some(Element { name: name.local.to_string(), attributes: attributes.collect(), text })
}

fn each(node: &Handle, visit: &mut impl FnMut(&Handle)) {
    visit(node);
    node.children.borrow().iter().for_each(|child| each(child, visit));
}
