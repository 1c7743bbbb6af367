"""Sentences in many languages, and the encodings that their texts are found in."""

from __future__ import annotations

UNICODE = ("utf-8", "utf-8-sig", "utf-16")

WESTERN = {
    "Danish": "Årsrapporten blev færdig i går, og bestyrelsen gennemgår den på mødet i København. Søren spurgte, hvorfor udgifterne til øvrige ydelser er så høje. Regnskabet viser også, at der mangler bilag for tre køb. Vi må ringe til leverandøren, før fristen udløber på lørdag. Æblerne og brødet er allerede betalt. Når du har læst det hele, så send mig dine bemærkninger. Det bliver spændende at høre, hvad de andre mener om forslaget.",
    "Dutch": "De vergadering begint om half tien en duurt naar verwachting twee uur. Geïnteresseerde collega's kunnen zich bij de receptie melden. Het verslag van vorige week is nog niet goedgekeurd, omdat één bijlage ontbreekt. Wij hebben de leverancier gevraagd om de coördinatie over te nemen. De reünie van oud-leerlingen vindt plaats in het café naast het station. Gelieve vóór vrijdag te laten weten of u komt.",
    "Finnish": "Kokous pidetään keskiviikkona, ja kaikki ovat tervetulleita. Hän sanoi, että tilaus lähetettiin jo viime viikolla, mutta paketti ei ole vielä täällä. Työryhmä käsittelee ehdotusta syksyllä. Pöytäkirja löytyy kansiosta, jonka nimi on määräykset. Älä unohda lähettää laskua ennen kuun loppua. Sää on ollut kylmä, ja tiet ovat jäässä. Ystävällisin terveisin koko väki.",
    "French": "Le rapport a été rédigé hier soir, après la réunion du comité. Où sont passées les pièces jointes que vous aviez promises ? L’équipe française préfère travailler à distance le mercredi. Il faudra vérifier les données reçues du fournisseur, car plusieurs dépenses ont été comptées deux fois. À partir du mois d'août, les congés seront demandés en ligne. Ça ne change rien à l’accord déjà signé. Le cœur du problème reste le délai.",
    "German": "Die Rechnung für den Monat März liegt bei, bitte prüfen Sie die Beträge. Während der Sitzung wurde über höhere Gebühren gesprochen. Der Geschäftsführer möchte wissen, ob die Lieferung pünktlich eintrifft. Straßensperrungen können zu Verzögerungen führen. Übrigens fehlt noch die Unterschrift auf Seite zwölf. Mit freundlichen Grüßen aus München. Die Öffnungszeiten ändern sich nächste Woche, außer am Samstag.",
    "Icelandic": "Fundurinn hefst klukkan níu og lýkur fyrir hádegi. Við þurfum að ræða fjárhagsáætlunina og næstu skref. Það er ekki ljóst hvenær sendingin kemur til landsins. Þórður sagði að öll gögnin væru í möppunni. Vinsamlegast svaraðu fyrir föstudag, því að fresturinn er stuttur. Veðrið hefur verið gott, en á morgun má búast við rigningu. Skýrslan er aðgengileg á síðunni.",
    "Italian": "La riunione è stata spostata a giovedì perché il direttore non può partecipare. I documenti più importanti sono già nella cartella condivisa. Non c'è ancora una risposta dell'ufficio acquisti, però la società ha confermato la quantità. È necessario verificare la città di destinazione e il codice fiscale. Così potremo spedire la merce lunedì. La qualità dei dati è migliorata, ma c’è ancora del lavoro da fare.",
    "Norwegian": "Møtet er flyttet til torsdag fordi flere ikke kan være til stede. Vi må også avklare hvem som skal føre regnskapet på nyåret. Leverandøren sier at varene blir sendt så snart prøvene er godkjent. Spørsmålene ligger ved som vedlegg. Husk å låse døra når du går hjem. Været blir bedre utover dagen, særlig på Østlandet. Årsmøtet holdes i Tromsø.",
    "Portuguese": "São Paulo não é a capital, mas é a maior cidade do país. A reunião começará às três horas da tarde, e você já está convidado. As informações sobre o orçamento serão enviadas amanhã. Precisamos de uma solução que funcione também nos fins de semana. O endereço está incorreto; por favor, faça a correção. Até lá, ninguém poderá acessar o relatório. Há três opções possíveis, e nenhuma é fácil.",
    "Spanish": "La reunión del próximo martes será en el salón de actos. ¿Podría enviarnos la factura antes de mediodía? El año pasado se vendieron más camiones en España que en Perú. Mañana llegará el técnico para revisar la instalación eléctrica. También pidió que se añadan los números de teléfono. No habrá atención al público el día de Navidad. Según el informe, la situación económica mejoró.",
    "Swedish": "Årsmötet hålls den första måndagen i mars och alla är välkomna. Vi behöver gå igenom räkningarna innan de betalas. Har du hört något från leverantören om förseningen? Handläggaren återkommer så fort ärendet är klart. Glöm inte att släcka lampan och låsa dörren. På lördag öppnar butiken en timme senare än vanligt. Många frågor återstår, men tonen är god.",
    "English": "The café on the corner was closed, so the meeting moved to the library. Nobody had read the résumé before the interview, which was naïve of us. The invoice says £40, yet the order was for €35. “We should ask again,” she said – and we did. The temperature never fell below 12° that week. Please review the façade drawings, and send comments by Friday. The rôle of the reviewer isn’t clear.",
}
"""Languages that Windows-1252 and Latin-1 write."""

OTHERS = {
    "Polish": "Spotkanie odbędzie się w środę o dziesiątej, ponieważ dyrektor wraca dopiero we wtorek. Proszę przesłać fakturę przed końcem miesiąca. Część dokumentów została już podpisana, ale brakuje jeszcze załączników. Łódź i Gdańsk zgłosiły opóźnienia w dostawie. Żaden z pracowników nie wziął urlopu w święta. Chcielibyśmy również wyjaśnić, dlaczego koszty są wyższe niż w zeszłym roku. Dziękujemy za szybką odpowiedź.",
    "Czech": "Schůze začíná v devět hodin a potrvá přibližně dvě hodiny. Prosíme, abyste předem zkontrolovali všechny účty. Dodavatel tvrdí, že zboží bylo odesláno už minulý týden. Příloha s výsledky měření chybí. Úřad žádá o doplnění údajů do konce měsíce. Děkujeme, že jste tak rychle odpověděli. Ředitel bude přítomen až odpoledne, protože jeho vlak má zpoždění.",
    "Hungarian": "Az értekezlet kedden délelőtt kezdődik, és előreláthatólag két óráig tart. Kérjük, hogy a számlákat még a hónap vége előtt küldjék el. A szállító szerint az áru már úton van, de a csomag nem érkezett meg. Több melléklet is hiányzik a jelentésből. Köszönjük a gyors választ, és elnézést kérünk a késésért. Az új igazgató jövő héten mutatkozik be. A költségek idén jóval magasabbak, mint tavaly.",
    "Turkish": "Toplantı çarşamba günü saat onda başlayacak ve yaklaşık iki saat sürecek. Lütfen faturayı ay sonundan önce gönderiniz. Tedarikçi ürünlerin geçen hafta yola çıktığını söylüyor, fakat paket hâlâ gelmedi. İstanbul ve İzmir şubelerinde gecikme yaşanıyor. Raporun ekleri eksik olduğu için onay verilmedi. Hızlı yanıtınız için teşekkür ederiz. Yeni müdür gelecek hafta göreve başlıyor.",
    "Lithuanian": "Susirinkimas prasidės trečiadienį dešimtą valandą ir truks apie dvi valandas. Prašome sąskaitą atsiųsti iki mėnesio pabaigos. Tiekėjas teigia, kad prekės jau išsiųstos, tačiau siuntinys dar negautas. Ataskaitoje trūksta kelių priedų. Dėkojame už greitą atsakymą ir atsiprašome dėl vėlavimo. Naujasis vadovas pradės dirbti kitą savaitę. Šiemet išlaidos yra gerokai didesnės.",
    "Russian": "Совещание начнётся в среду в десять часов и продлится около двух часов. Просим прислать счёт до конца месяца. Поставщик утверждает, что товар уже отправлен, однако посылка ещё не пришла. В отчёте не хватает нескольких приложений. Благодарим за быстрый ответ и просим извинить нас за задержку. Новый руководитель приступит к работе на следующей неделе. Расходы в этом году заметно выше.",
    "Ukrainian": "Нарада розпочнеться в середу о десятій годині й триватиме близько двох годин. Просимо надіслати рахунок до кінця місяця. Постачальник стверджує, що товар уже відправлено, проте посилка ще не надійшла. У звіті бракує кількох додатків. Дякуємо за швидку відповідь і перепрошуємо за затримку. Новий керівник почне працювати наступного тижня. Цього року витрати значно більші.",
    "Bulgarian": "Срещата започва в сряда в десет часа и ще продължи около два часа. Моля, изпратете фактурата преди края на месеца. Доставчикът твърди, че стоката вече е изпратена, но пратката още не е пристигнала. В отчета липсват няколко приложения. Благодарим за бързия отговор и се извиняваме за закъснението. Новият директор ще започне работа следващата седмица.",
    "Greek": "Η συνάντηση θα ξεκινήσει την Τετάρτη στις δέκα και θα διαρκέσει περίπου δύο ώρες. Παρακαλούμε να στείλετε το τιμολόγιο πριν από το τέλος του μήνα. Ο προμηθευτής λέει ότι τα προϊόντα έχουν ήδη αποσταλεί, όμως το δέμα δεν έχει φτάσει ακόμη. Από την αναφορά λείπουν μερικά παραρτήματα. Σας ευχαριστούμε για τη γρήγορη απάντηση. Τα έξοδα φέτος είναι πολύ υψηλότερα.",
    "Hebrew": "הפגישה תתחיל ביום רביעי בשעה עשר ותימשך כשעתיים. אנא שלחו את החשבונית לפני סוף החודש. הספק טוען שהסחורה כבר נשלחה, אך החבילה עדיין לא הגיעה. בדוח חסרים כמה נספחים. אנו מודים על התשובה המהירה ומתנצלים על העיכוב. המנהל החדש יתחיל לעבוד בשבוע הבא. ההוצאות השנה גבוהות בהרבה מאשר בשנה שעברה.",
    "Arabic": "يبدأ الاجتماع يوم الأربعاء في الساعة العاشرة ويستمر نحو ساعتين. يرجى إرسال الفاتورة قبل نهاية الشهر. يقول المورد إن البضاعة أرسلت بالفعل، لكن الطرد لم يصل بعد. ينقص التقرير عدد من الملاحق. نشكركم على الرد السريع ونعتذر عن التأخير. سيبدأ المدير الجديد عمله الأسبوع القادم. المصاريف هذا العام أعلى بكثير.",
    "Japanese": "会議は水曜日の十時に始まり、約二時間続きます。請求書は月末までにお送りください。仕入先によると、商品はすでに発送されたそうですが、荷物はまだ届いていません。報告書にはいくつかの資料が足りません。早速のご返事ありがとうございます。新しい部長は来週から仕事を始めます。今年の費用は昨年よりかなり高くなっています。",
    "Chinese": "会议将于星期三上午十点开始，大约持续两个小时。请在月底之前把发票寄给我们。供应商说货物已经发出，但是包裹还没有到。报告里缺少几个附件。感谢您的快速回复，并对延误表示歉意。新的经理下周开始工作。今年的费用比去年高得多。",
    "Korean": "회의는 수요일 열 시에 시작하여 약 두 시간 동안 계속됩니다. 청구서는 월말까지 보내 주시기 바랍니다. 공급업체는 상품을 이미 발송했다고 하지만 소포는 아직 도착하지 않았습니다. 보고서에 몇 가지 첨부 자료가 빠져 있습니다. 빠른 답변에 감사드리며 지연된 점 사과드립니다. 새 부장은 다음 주부터 일을 시작합니다.",
}

ENCODINGS = {
    **dict.fromkeys(WESTERN, (*UNICODE, "cp1252", "latin-1")),
    "Polish": (*UNICODE, "cp1250", "iso8859-2"),
    "Czech": (*UNICODE, "cp1250", "iso8859-2"),
    "Hungarian": (*UNICODE, "cp1250", "iso8859-2"),
    "Turkish": (*UNICODE, "cp1254", "iso8859-9"),
    "Lithuanian": (*UNICODE, "cp1257", "iso8859-13"),
    "Russian": (*UNICODE, "cp1251", "koi8-r"),
    "Ukrainian": (*UNICODE, "cp1251", "koi8-u"),
    "Bulgarian": (*UNICODE, "cp1251", "iso8859-5"),
    "Greek": (*UNICODE, "cp1253", "iso8859-7"),
    "Hebrew": (*UNICODE, "cp1255", "iso8859-8"),
    "Arabic": (*UNICODE, "cp1256", "iso8859-6"),
    "Japanese": (*UNICODE, "shift_jis", "euc-jp"),
    "Chinese": (*UNICODE, "gb18030", "big5"),
    "Korean": (*UNICODE, "euc-kr", "cp949"),
}
