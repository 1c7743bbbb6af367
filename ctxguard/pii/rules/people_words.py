"""The words by which a text itself says that a name or a postal address stands here, language by language.

Labels of fields, introductions, salutations, closings, titles, words for streets: closed classes of words, as
dictionaries list them. There are no names of people or places here. Phrases are separated by `;`, and `(a|b)` stands
for either. A phrase is read word by word, so `first name` is `first_name`, `first-name` and `firstName`, too.
"""

from __future__ import annotations

from typing import Final

NAME_LABELS: Final = (
    # en
    "(first|last|full|given|family|middle|maiden|legal|preferred|nick|sur|fore|christian|birth) name;surname;"
    "forename;cardholder;cardholder name;card holder( name|);account holder( name|);next of kin;"
    "name of (customer|client|passenger|patient|guest|applicant|insured|employee);(customer|client|passenger|"
    "patient|guest|traveler|traveller|employee|person|contact|recipient|sender|author|buyer|payee|payer|"
    "beneficiary|holder|owner|member|student|teacher|doctor|dentist|therapist|stylist|manager|driver|tenant|"
    "landlord|applicant|candidate|attendee|assignee|speaker|reviewer|agent|spouse|father|mother|parent|child|"
    "witness|insured|subscriber|signatory|reporter|resident|your|his|her|spouse) (|full |first |last )name"
    # de
    ";(vor|nach|familien|zu|geburts|ruf|kunden|patienten|empfänger|mitarbeiter|vor und nach) name;vorname;"
    "nachname;familienname;zuname;geburtsname;kundenname;patientenname;ansprechpartner(|in);kontoinhaber(|in);"
    "karteninhaber(|in);sachbearbeiter(|in);name des (kunden|patienten|fahrgasts|versicherten|mieters)"
    # fr
    ";prénom(|s);prenom;nom de famille;nom complet;nom et prénom(|s);nom prénom;nom d usage;nom de jeune fille;"
    "nom de naissance;nom du (client|patient|passager|titulaire|destinataire);titulaire( de la carte| du compte|)"
    # es
    ";nombre completo;nombre(|s) y apellido(|s);primer nombre;segundo nombre;apellido(|s);primer apellido;"
    "segundo apellido;nombre de pila;nombre del (cliente|paciente|pasajero|titular|empleado);"
    "titular de la (cuenta|tarjeta)"
    # it
    ";cognome;nome completo;nome e cognome;cognome e nome;nominativo;intestatario;nome del (cliente|paziente|"
    "passeggero|titolare);nome cliente;nome paziente"
    # nl
    ";voornaam;achternaam;familienaam;volledige naam;roepnaam;geboortenaam;klantnaam;kaarthouder;rekeninghouder;"
    "contactpersoon;naam van de (klant|patiënt|passagier|huurder)"
    # pt
    ";nome completo;sobrenome;apelido de família;primeiro nome;último nome;nome d(o|a) (cliente|paciente|"
    "passageiro|titular|mãe|pai);titular do cartão;titular da conta"
    # pl
    ";imię i nazwisko;imiona;imię;nazwisko( rodowe| panieńskie|);imię klienta;nazwisko klienta;posiadacz (karty|"
    "rachunku)"
)
"""Labels of a field that holds a person's name and nothing else."""
PLAIN_LABELS: Final = (
    "name;names;passenger;patient;customer;client;contact;contact person;attn;attention;guest;employee;recipient;"
    "sender;author;owner;assignee;reporter;manager;doctor;physician;nurse;attorney;tenant;traveler;traveller;"
    "signed;signed by;reviewed by;created by;written by;prepared by;approved by;requested by;kunde;kundin;"
    "patientin;passagier;fahrgast;gast;empfänger;absender;unterschrift;arzt;ärztin;mandant;mandantin;z hd;nom;"
    "cliente;patiente;passager;passagère;voyageur;médecin;expéditeur;destinataire;nombre;paciente;pasajero;"
    "pasajera;contacto;médico;médica;responsable;remitido por;destinatario;remitente;nome;paziente;passeggero;"
    "passeggera;contatto;medico;mittente;naam;klant;patiënt;reiziger;afzender;ontvanger;arts;passageiro;"
    "passageira;contato;destinatário;remetente;klient;klientka;pacjent;pacjentka;pasażer;pasażerka;lekarz;"
    "adresat;odbiorca;nadawca"
)
"""Labels of a field that holds a person's name, or that of anything else."""
BESIDE_NAMES: Final = (
    "email;e mail;mail;correo;courriel;birth;birthday;born;dob;geboren;geburtsdatum;naissance;nacimiento;nascita;"
    "nascimento;geboortedatum;urodzenia;gender;sex;sexo;sexe;sesso;geslacht;geschlecht;płeć;ssn;passport;"
    "pasaporte;passaporto;reisepass;dni;nie;nif;cpf;pesel;bsn;age;edad;alter;âge;età;idade;leeftijd;wiek;surname;"
    "firstname;lastname;vorname;nachname;prénom;apellido;apellidos;cognome;achternaam;voornaam;sobrenome;"
    "nazwisko;nationality;salary;occupation;username;paciente;patient;passenger"
)
"""Words of labels that stand beside the name of a person, and not beside that of a thing."""
BESIDE_PARTS: Final = (
    "surname;first name;last name;firstname;lastname;given name;family name;vorname;nachname;prénom;prenom;apellido;"
    "apellidos;cognome;achternaam;voornaam;sobrenome;apelido;nazwisko"
)
"""Labels of a part of a name: what stands under `name` beside them is the other part, be it a single word."""
NOM: Final = "nom"
BESIDE_NOM: Final = f"{BESIDE_PARTS};email;e mail;courriel;adresse mail"
PATIENTS: Final = "patient;patientin;patiente;paciente;paziente;patiënt;patiënte;pacjent;pacjentka"
"""Labels with a name of several words behind a colon; but for the first, which things are called by, also without."""
BESIDE_CONTACTS: Final = (
    "phone;telephone;tel;mobile;cell;fax;address;street;telefon;adresse;anschrift;téléphone;teléfono;dirección;"
    "domicilio;telefono;indirizzo;telefoon;adres;telefone;endereço;morada"
)
"""Words of labels that stand beside the name of a person or of a firm."""
INTRODUCTIONS: Final = (
    "(my|his|her|their|your|user s|customer s|passenger s|patient s|client s|caller s|guest s|wife s|husband s|"
    "partner s|son s|daughter s|friend s|boss s|owner s|employee s|mother s|father s|brother s|sister s) (|full |"
    "first |last |legal |real )name( is|s are| was| s);name of the (customer|passenger|patient|client|guest|user|"
    "account holder) is;(mein|dein|sein|ihr|unser) (name|vorname|nachname) (ist|lautet);(ich|er|sie) (heiße|"
    "heisse|heißt);je m appelle;je me nomme;mon (nom|prénom|nom complet) est;(il|elle) s appelle;son (nom|"
    "prénom) est;me llamo;mi (nombre|apellido|nombre completo) es;se llama;su nombre es;mi chiamo;il mio (nome|"
    "cognome) è;si chiama;il suo nome è;ik heet;(mijn|zijn|haar) (naam|voornaam|achternaam) is;me chamo;chamo me;"
    "(meu|seu) nome (|completo )é;nazywam się;mam na imię;moje imię to;moje nazwisko to;nazywa się"
)
"""Phrases that say the name of a person, however it is written."""
NAMED: Final = (
    "(my|his|her|their|your|user s|customer s|passenger s|patient s|client s|partner s|wife s|husband s) (|full |"
    "last )name;i go by;call me;by the name of;under the name( of|);in the name of;speaking (with|to);signed by;"
    "authored by;married to;said to;(man|woman|boy|girl|guy|person|customer|client|patient|friend|colleague|"
    "coworker|user|lady|gentleman|child|baby|kid|lawyer|doctor|teacher) (named|called);man nennt mich;"
    "auf den namen;namens;unter dem namen;im namen von;hier spricht;sie sprechen mit;au nom de;vous parlez à;"
    "a nombre de;le habla;te habla;habla usted con;a nome di;le parla;op naam van;(u spreekt|je spreekt) met;"
    "(hij|zij|ze) heet;em nome de;aqui fala;fala com;na nazwisko;z tej strony"
)
"""Phrases behind which a name in capitals is a person's."""
SELVES: Final = "i am;i m;ich bin;je suis;soy;yo soy;sono;ik ben;eu sou;sou;jestem"
"""Phrases behind which several words in capitals are a person's name."""
CALLERS: Final = "this is;hier ist;ici;aquí;qui;hier is;met;aqui é;tu mówi"
"""Phrases behind which a name stands, if `CALLING` stands behind it."""
CALLING: Final = (
    "calling|speaking|from|here|am apparat|à l'appareil|al teléfono|al telefono|aan de lijn|ao telefone|z firmy"
)
CHANNELS: Final = "sms;mms;whatsapp;imessage;telegram;wechat;text message;chat;call;phone call;voicemail;missed call"
"""In brackets, where a message begins, with who wrote it behind."""
RELATIVES: Final = (
    "(my|his|her|their|our|your) (wife|husband|son|daughter|mother|father|mom|mum|dad|brother|sister|friend|"
    "best friend|boss|manager|colleague|coworker|co worker|partner|girlfriend|boyfriend|fiancé|fiancée|kid|child|"
    "uncle|aunt|cousin|nephew|niece|grandmother|grandfather|grandson|granddaughter|roommate|neighbor|neighbour|"
    "assistant|lawyer|teacher|landlord|spouse|twin|baby|client|student|patient);(mein|meine|meiner|meinem|meinen|"
    "unser|unsere|seine|seiner|ihre|ihrer) (frau|mann|sohn|tochter|mutter|vater|bruder|schwester|freund|freundin|"
    "chef|chefin|kollege|kollegen|kollegin|partner|partnerin|nachbar|nachbarin|tante|onkel);(mon|ma|son|sa|notre|"
    "votre) (femme|mari|fils|fille|mère|père|frère|sœur|soeur|ami|amie|copain|copine|chef|collègue|épouse|époux|"
    "voisin|voisine|oncle|tante);(mi|su|nuestro|nuestra) (esposa|esposo|marido|mujer|hijo|hija|madre|padre|"
    "hermano|hermana|amigo|amiga|jefe|jefa|colega|novia|novio|vecino|vecina|tío|tía|pareja);(mio|mia|suo|"
    "sua) (moglie|marito|figlio|figlia|madre|padre|fratello|sorella|amico|amica|capo|collega|fidanzata|fidanzato|"
    "vicino|vicina|zio|zia);(mijn|zijn|haar|onze) (vrouw|man|zoon|dochter|moeder|vader|broer|zus|vriend|vriendin|"
    "baas|collega|partner|buurman|buurvrouw|oom|tante);(minha|meu|sua|seu) (esposa|esposo|marido|mulher|filho|"
    "filha|mãe|pai|irmão|irmã|amigo|amiga|chefe|colega|namorada|namorado|vizinho|vizinha|tio|tia);(moja|mój|moją|"
    "mojego|mojej) (żona|żonę|mąż|męża|syn|syna|córka|córkę|matka|ojciec|brat|brata|siostra|siostrę|przyjaciel|"
    "przyjaciółka|szef|szefowa|kolega|koleżanka)"
)
"""Whose name stands right behind."""
ROLES: Final = (
    "customer;passenger;patient;client;employee;guest;user;member;student;traveler;traveller;attorney;lawyer;"
    "colleague;coworker;recipient;sender;caller;applicant;candidate;friend;neighbor;tenant;kunde;kundin;"
    "patientin;mandant;fahrgast;cliente;paciente;pasajero;passager;paziente;passeggero;klant;passagier;"
    "passageiro;klient;klientka;pacjent;pacjentka"
)
"""In small letters, with a name of several words right behind."""
TITLES: Final = (
    "mr;mrs;ms;miss;mx;messrs;dr;drs;prof;professor;sra;srta;sr;hr;herrn;herr;frau;fräulein;monsieur;madame;"
    "mademoiselle;mme;mlle;señora;señorita;señor;doña;dña;dra;signora;signorina;signor;sig;sig ra;dott ssa;"
    "dottoressa;dott;avv;dhr;mevrouw;mevr;mw;meneer;senhora;senhor;dona;pani;panu;panem;panią;panie"
)
"""Titles of a person, with a dot or without; a capital begins them."""
GREETINGS: Final = (
    "dear;hi;hello;hey;hiya;hi there;greetings;good (morning|afternoon|evening);welcome;welcome back;"
    "sehr geehrte(|r);liebe(|r);hallo;guten (tag|morgen|abend);moin;servus;grüezi;cher;chère;bonjour;bonsoir;"
    "salut;coucou;estimad(o|a);querid(o|a);hola;buenos días;buenas (tardes|noches);gentile;gentilissim(o|a);"
    "egregio;car(o|a);ciao;salve;buongiorno;buonasera;beste;geachte;lieve;hoi;goede(morgen|middag|navond);"
    "prezad(o|a);olá;oi;bom dia;boa (tarde|noite);szanown(y|a);drog(i|a);kochan(y|a);cześć;dzień dobry;witaj;hej;"
    "thank you( so much| very much|);thanks( so much| a lot|);sorry;congratulations;congrats;goodbye;bye;"
    "nice to meet you;pleased to meet you;danke;vielen dank;tschüss;merci;au revoir;gracias;muchas gracias;adiós;"
    "grazie;arrivederci;bedankt;dank je;obrigad(o|a);dziękuję"
)
"""What is said to a person, whose name stands right behind and ends what is said."""
CLOSINGS: Final = (
    "best( regards| wishes|);all the best;(kind|kindest|warm|many|my best) regards;regards;warmly;"
    "sincerely( yours|);yours( sincerely| faithfully| truly|);respectfully( yours|);cordially;cheers;(many |"
    ")thanks( again| in advance|);thank you( in advance|);with gratitude;signed;love;lots of love;take care;"
    "see you( soon|);talk soon;xoxo;mit (freundlichen|besten|herzlichen|lieben|vielen) grüßen;"
    "mit freundlichen gruessen;(viele|liebe|beste|herzliche|freundliche) grüße;hochachtungsvoll;lg;vg;mfg;gruß;"
    "vielen dank;(bien |)cordialement;sincèrement;amicalement;bien à vous;salutations distinguées;bises;"
    "merci( d avance|);respectueusement;(un |)saludo(|s)( cordiales|);un cordial saludo;cordialmente;(muy |"
    ")atentamente;un abrazo;gracias;muchas gracias;besos;(cordiali |distinti |)saluti;grazie;un abbraccio;"
    "a presto;in fede;(met |)vriendelijke groet(|en);groet(|en|jes);hartelijke groet(|en);mvg;hoogachtend;"
    "bedankt;liefs;atenciosamente;(com os melhores |)cumprimentos;abraço(|s);um abraço;obrigad(o|a);beijos;"
    "z poważaniem;(serdecznie |)pozdrawiam;z pozdrowieniami;serdeczne pozdrowienia;dziękuję;z wyrazami szacunku"
)
"""What a letter ends with, right before the name of who wrote it."""
ADDRESS_LABELS: Final = (
    "address( line|)(| 1| 2| 3);(street|home|mailing|postal|billing|shipping|delivery|residential|work|office|"
    "current|new|permanent|return|full|pickup|customer|patient|client|employee|property|contact|my|your|his|her|"
    "our|their|secondary|same) address(| line)(| is| to);addr(1|2|);po box;adresse;postadresse;lieferadresse;"
    "rechnungsadresse;wohnadresse;anschrift;wohnhaft( in|);wohnort;postfach;domicile;adresse( postale|"
    " de livraison| de facturation| personnelle);dirección;dirección (postal|de envío|de facturación);direccion;"
    "domicilio;indirizzo( di casa| di spedizione| postale|);residenza;adres;woonadres;postadres;bezoekadres;"
    "factuuradres;afleveradres;woonplaats;endereço( de entrega| residencial|);endereco;morada;logradouro;"
    "residência;adres (zamieszkania|korespondencyjny|dostawy);miejsce zamieszkania;zamieszkał(y|a)"
)
"""Labels of a field that holds a postal address."""
ADDRESS_PARTS: Final = (
    "street( name| number|);apt;apartment;house number;unit number;strasse;straße;hausnummer;"
    "straße und hausnummer;rue;voie;calle;via;straat;straatnaam;huisnummer;rua;ulica;address(1|2|3)"
)
"""Labels of a field that holds a part of a postal address."""
CITIES: Final = (
    "city;town;stadt;ort;ville;ciudad;localidad;localidad provincia;población;città;comune;stad;plaats;cidade;"
    "miasto;miejscowość;state;province;provincia"
)
"""Labels of a place, which is part of an address where a street or a postal code stands beside it."""
BESIDE_CITIES: Final = (
    "zip;zipcode;postcode;postal;plz;postleitzahl;cp;cep;cap;kod;street;straße;strasse;rue;calle;via;straat;rua;"
    "ulica;address1;address2;domicilio"
)
CODES: Final = (
    "zip( code|);zipcode(|s);post code;postcode;postal code;plz;postleitzahl;code postal;cp;código postal;"
    "codigo postal;cap;codice postale;cep;kod pocztowy;zip or postal code"
)
"""Labels of a field that holds a postal code."""
ADDRESS_PHRASES: Final = (
    "(live|lives|living|lived|reside|resides|residing) (at|on);located at;address (is|to|was|with|on|at);(office|"
    "house|home|apartment|flat|place) is (at|on);(meet|see) (me|you|us) at;send (a|the) (new one|replacement|"
    "package|parcel|letter) to;moved to;move to;deliver( it|ed|) to;ship( it| them|ped|) to;send (it|them|"
    "this) to;pick me up at;(taxi|cab|ride) to;come to;wohnt in;wohne in;wohnhaft in;habite( au| à|);"
    "demeurant( au| à);(vive|vivo|reside|domiciliado|domiciliada) en;(abito|abita|residente|residenti) in;(woont|"
    "woon) (in|op|aan);(mora|moro|reside) (na|no|em);(mieszka|mieszkam) (przy|na)"
)
"""Phrases behind which an address stands."""
STREET_WORDS: Final = (
    "street|st|avenue|ave|av|road|rd|drive|dr|lane|ln|boulevard|blvd|court|ct|place|pl|square|sq|terrace|ter|way|"
    "parkway|pkwy|highway|hwy|circle|cir|trail|trl|crescent|cres|close|alley|row|mews|grove|gardens|heights|"
    "plaza|expressway|turnpike|loop|pike|run|walk|crossing|bend|ridge|hill|broadway|quay|wharf|esplanade|parade"
)
"""What a street ends with in English, in a word of its own; the number stands before it."""
STREET_ENDINGS: Final = (
    "straße|strasse|str|gasse|weg|platz|allee|ufer|damm|ring|steig|chaussee|promenade|straat|laan|plein|gracht|"
    "kade|dijk|singel|hof|gatan|vägen|gata|vegen|veien|gade|vej|katu|tie|utca|markt"
)
"""What a street ends with in languages that write it in one word; the number stands behind it."""
HOUSE_FIRST: Final = (
    "rue|avenue|boulevard|bd|place|chemin|impasse|allée|allées|quai|cours|route|square|passage|faubourg"
)
"""What a street begins with in French; the number stands before it."""
HOUSE_LAST: Final = (
    "calle|c|avenida|avda|av|plaza|pza|paseo|pº|camino|carretera|ctra|travesía|ronda|glorieta|via|viale|piazza|"
    "piazzale|corso|vicolo|strada|largo|lungomare|rua|travessa|praça|alameda|estrada|rodovia|ul|ulica|ulicy|al|"
    "aleja|aleje|pl|plac|os|osiedle|bulevardul|bd|str"
)
"""What a street begins with in southern and eastern Europe; the number stands behind it."""
ORGANIZATIONS: Final = (
    "inc|llc|ltd|corp|corporation|company|co|gmbh|ag|kg|sa|srl|spa|bv|nv|plc|hotel|inn|suites|restaurant|cafe|"
    "café|bar|grill|pizza|pizzeria|bistro|kitchen|diner|bakery|bank|museum|park|airport|university|college|"
    "school|hospital|clinic|clinics|center|centre|store|shop|mall|market|salon|spa|studio|theater|theatre|cinema|"
    "gym|church|library|station|group|holdings|services|service|solutions|systems|technologies|labs|team|"
    "department|support|office|agency|airlines|insurance|foundation|institute|association|club|ministry|"
    "committee|council|street|road|avenue|city|county|island|project|plan|program|system|model|server|client|"
    "version|edition|series|set|kit|policy|protocol|format|default|housing|estate|apartments|tower|building|"
    "festival|concert|tour|orchestra|rentals?|auto|motors|dental|stadium|dental|dermatology|medical|medicine|"
    "pharmacy|surgery|health|wellness|therapy|counseling|care|associates|practice|barbers|hair|beauty|"
    "skin|partners|consulting|media|press|news|times|games|foods|international|global|national|digital|servicio|"
    "servicios|departamento|unidad|clínica|centro|ministerio|universidad|facultad|colegio|cirugía|urgencias|"
    "abteilung|dienst|universität|klinik|krankenhaus|praxis|verein|schule|hôpital|université|école|société|"
    "ministère|mairie|ospedale|università|scuola|ufficio|ministero|comune|ziekenhuis|universiteit|gemeente|"
    "afdeling|universidade|escola|szpital|uniwersytet|szkoła|urząd"
)
"""Words in the names of firms, places and things; a name that holds one is no person's."""
PARTICLES: Final = (
    "de|da|do|dos|das|del|della|dello|delle|degli|dei|di|van|von|vom|zu|zum|zur|der|den|des|het|ten|ter|te|la|le|"
    "les|el|al|bin|ibn|ben|bint|y|e|i|af|av|und|du|st|ap|mac|mc"
)
"""Words in small letters within a name."""
NO_NAME: Final = (
    "wife|husband|mom|mum|mommy|dad|daddy|mother|father|grandma|grandpa|uncle|aunt|son|daughter|brother|sister|"
    "boss|honey|darling|baby|frau|mann|maman|papa|mama|mamá|papá|mãe|pai|contact|attendees|participants|"
    "organizer|signed|none|null|true|false|unknown|undefined|nil|nan|string|number|integer|boolean|object|array|"
    "list|dict|type|value|text|required|optional|empty|missing|hidden|anonymous|guest|admin|administrator|root|"
    "user|users|test|example|sample|please|the|this|that|these|those|there|here|it|its|he|she|they|we|you|your|"
    "yours|my|our|his|her|their|who|what|when|where|why|how|which|and|or|but|not|no|yes|ok|okay|if|so|as|is|are|"
    "was|were|be|been|am|do|does|did|can|could|would|should|might|must|have|has|had|for|from|with|without|to|of|"
    "in|on|at|by|about|all|any|everyone|everybody|someone|anyone|nobody|folks|guys|friends|friend|team|sir|madam|"
    "maam|ma'am|sirs|mam|customer|customers|client|colleague|colleagues|hiring|manager|support|service|world|"
    "agent|assistant|ai|bot|claude|chatgpt|gpt|siri|alexa|human|name|names|first|last|full|given|family|surname|"
    "email|e-mail|mail|phone|address|street|city|state|country|zip|date|birth|gender|age|id|code|title|role|"
    "status|description|company|organization|department|website|url|link|password|username|monday|tuesday|"
    "wednesday|thursday|friday|saturday|sunday|january|february|march|july|september|october|november|december|"
    "today|tomorrow|yesterday|note|notes|see|also|order|details|information|info|confirmed|confirmation|new|old|"
    "now|then|just|only|once|after|before|again|still|very|really|let|let's|i|i'm|i'll|i've|i'd|it's|sure|great|"
    "good|thank|thanks|well|sorry|hi|hello|hey|dear|best|regards|mr|mrs|ms|miss|dr|prof|mx|herr|frau|herren|"
    "damen|kunde|kunden|monsieur|madame|messieurs|mesdames|señor|señora|señores|cliente|clientes|signori|heer|"
    "mevrouw|heren|dames|senhor|senhora|senhores|państwo|pani|pan|ich|wir|sie|und|nicht|kein|keine|ja|nein|der|"
    "die|das|ein|eine|je|nous|vous|et|ou|non|oui|un|une|yo|el|los|las|una|pero|sí|io|noi|lui|lei|ma|il|lo|gli|ik|"
    "wij|zij|het|een|niet|geen|eu|ele|ela|não|sim|um|uma|ty|ona|nie|tak|alle|allen|zusammen|tous|toutes|todos|"
    "todas|tutti|allemaal|wszyscy|class|function|method|variable|file|folder|path|key|index|column|row|table|"
    "field|schema|module|package|english|german|french|spanish|italian|dutch|portuguese|polish|american|chinese|"
    "russian|british|european"
)
"""Words that never stand in a name."""
ORDINARY: Final = (
    "will|mark|may|june|april|august|summer|autumn|winter|rose|lily|daisy|grace|hope|faith|joy|art|bill|chase|"
    "chance|chip|christian|clay|cliff|cash|dawn|forest|grant|guy|holly|hunter|iris|ivy|jewel|king|lane|merry|"
    "miles|misty|noble|olive|park|patience|peg|penny|poppy|prince|ray|reed|rich|ruby|rusty|sage|sandy|sky|skip|"
    "star|sterling|stone|sunny|trip|violet|wade|young|long|short|small|little|brown|black|white|green|gray|grey|"
    "gold|silver|blue|bright|strong|wise|good|best|love|day|night|moon|sun|west|east|north|south|bush|fields?|"
    "woods?|banks?|bridges?|brook|ford|hall|hill|house|hunt|major|marsh|moss|page|pope|price|rice|rivers?|root|"
    "rush|singer|smart|snow|speed|steel|swift|temple|wall|ward|waters?|weeks?|wolf|worth|baker|barber|bishop|"
    "butler|carpenter|cook|farmer|fisher|gardener|judge|knight|mayor|mill|porter|potter|shepherd|weaver|bond|"
    "book|case|cross|deal|drive|english|french|german|holland|ireland|israel|china|chad|georgia|india|paris|"
    "florence|london|austin|dallas|houston|lincoln|washington|brooklyn|chelsea|sydney|virginia|carolina|dakota|"
    "montana|java|crystal|python|watson|alexa|siri|claude|mercury|apple|angel|angels|dolores|paz|luz|sol|mar|"
    "flores|rey|leal|calle|bueno|blanco|bravo|guerra|prado|klein|gross|groß|lang|kurz|jung|alt|neu|weiß|schwarz|"
    "braun|roth|rot|sommer|herbst|sonntag|freitag|montag|könig|kaiser|graf|bauer|koch|berg|bach|wald|stein|blanc|"
    "noir|petit|grand|constant|marin|neri|verdi|monti|villa|groot|jong|wit|koning|prins"
)
"""Names that are words of a language, too: alone they are not looked for once somebody of that name is known."""
