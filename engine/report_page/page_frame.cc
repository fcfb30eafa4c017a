#include "engine/report_page/page_frame.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "engine/base/messages/catalogue.h"
#include "engine/base/messages/language.h"
#include "engine/base/text.h"
#include "engine/report_page/page_text.h"

namespace msprobe::report_page {
namespace {

std::string FromHex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  return bytes;
}

// Chinese by the sentences of the script, as JSON.
std::string ChineseTexts() {
  std::string json = "{";
  for (const auto& [english, chinese] : Catalogue::Read(kPageTranslations)) {
    if (json.size() > 1) json += ',';
    AppendJsonString(&json, english);
    json += ':';
    AppendJsonString(&json, chinese);
  }
  return json + "}";
}

std::string EndOfPage(size_t parts) {
  return fmt::format("<i id=\"end\" data-parts=\"{}\" hidden></i>\n</body>\n</html>\n", parts);
}

}  // namespace

std::string Tagged(std::string_view tag, std::string_view attributes, const Message& text,
                   size_t most) {
  const std::string english = HtmlText(text.English(), most),
                    chinese = HtmlText(text.In(Language::kChinese), most);
  const std::string other = chinese == english ? "" : fmt::format(" data-zh=\"{}\"", chinese);
  return fmt::format("<{}{}{}{}>{}</{}>", tag, attributes.empty() ? "" : " ", attributes, other,
                     english, tag);
}

std::string Element(std::string_view tag, std::string_view kind, const Message& text) {
  if (text.empty()) return "";
  return Tagged(tag, kind.empty() ? "" : fmt::format("class=\"{}\"", kind), text) + '\n';
}

std::string NameElement(std::string_view tag, std::string_view kind, std::string_view name) {
  if (name.empty()) return "";
  const std::string names = kind.empty() ? "" : fmt::format(" class=\"{}\"", kind);
  return fmt::format("<{}{} translate=\"no\">{}</{}>\n", tag, names, HtmlText(name), tag);
}

std::string Term(const Message& label, const Message& text) {
  if (text.empty()) return "";
  return Tagged("dt", "", label) + Tagged("dd", "", text) + '\n';
}

std::string HeadOfPage(std::string_view title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n<title>{}</title>\n<style>{}</style>\n"
      "</head>\n<body>\n",
      CurrentLanguage() == Language::kChinese ? "zh" : "en", Base64(FromHex(kPageScriptSha256)),
      Base64(FromHex(kPageStyleSha256)), HtmlText(title, 200), kPageStyle);
}

std::string Header(const Message& verdict, std::string_view kind, std::string_view sides) {
  return fmt::format("<header><b>msprobe</b> {} <span id=\"sides\">{}</span></header>\n",
                     Tagged("strong", fmt::format("id=\"verdict\" class=\"{}\"", kind), verdict),
                     sides);
}

std::string SidesOf(std::string_view target, std::string_view golden) {
  std::string text = fmt::format("{} <bdi translate=\"no\">{}</bdi>",
                                 Tagged("span", "", "target"_t), HtmlText(target));
  if (!golden.empty())
    text += fmt::format(" {} <bdi translate=\"no\">{}</bdi>", Tagged("span", "", "golden"_t),
                        HtmlText(golden));
  return text;
}

std::string RoomForCalls() {
  return Tagged("p", "id=\"state\" role=\"status\"",
                "The calls are being read. If this line stays, JavaScript is switched off, or a "
                "part of "
                "this file is missing: copy the file once more."_t) +
         "\n<div id=\"calls\" hidden></div>\n";
}

PageText PageOf(std::string begin, PageText trends, std::span<PagePart> parts) {
  PageText page;
  page.push_back(std::move(begin));
  // After what is plain text: of a file that was cut within the script, the finding is still there.
  page.push_back(fmt::format("<script type=\"module\">{}</script>\n", kPageScript));
  std::move(trends.begin(), trends.end(), std::back_inserter(page));
  for (PagePart& part : parts) {
    PageText pieces = std::exchange(part.html, {});
    std::move(pieces.begin(), pieces.end(), std::back_inserter(page));
  }
  AppendText("catalogue", ChineseTexts(), &page);
  page.push_back(EndOfPage(parts.size()));
  return page;
}

}  // namespace msprobe::report_page
